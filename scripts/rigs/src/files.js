// files.js server IP PORT | files.js client IP PORT: 8 bytes ask for 16 KiB; two connections
const net = require('net'); const [, , what, ip, port] = process.argv; const body = Buffer.alloc(16384, 'x');
if (what === 'server') {
  net.createServer((s) => { s.setNoDelay(true); let have = 0;
    s.on('data', (b) => { have += b.length; while (have >= 8) { have -= 8; s.write(body); } }); s.on('error', () => {});
  }).listen(Number(port), ip, () => console.log('ready'));
} else {
  const start = process.hrtime.bigint(); const since = () => Number(process.hrtime.bigint() - start) / 1e9; let n = 0;
  const all = [];
  for (let i = 0; i < 2; i++) {
    const s = net.connect(Number(port), ip); s.setNoDelay(true); let have = 0; all.push(s);
    s.on('connect', () => s.write('file 12\n')); s.on('error', () => {});
    s.on('data', (b) => { have += b.length; if (have >= 16384) { have -= 16384; n++; s.write('file 12\n'); } });
  }
  setTimeout(() => { console.log(`rate=${(n / since()).toFixed(1)}`); process.exit(0); }, 1200);
}
