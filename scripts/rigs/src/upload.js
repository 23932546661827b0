// upload.js PORT POLITE: takes uploads; POLITE=1 says "100 Continue" to a client that expects it, 0 waits for the body silently
const http = require('http');
const [, , port, polite] = process.argv;
function take(req, res) { let n = 0; req.on('data', (b) => { n += b.length; }); req.on('end', () => res.end(`got ${n}\n`)); }
const s = http.createServer(take);
s.on('checkContinue', (req, res) => { if (polite === '1') res.writeContinue(); take(req, res); });
s.listen(+port, '127.0.0.1', () => console.log('ready'));
