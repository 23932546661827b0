// press.js PORT EACH: an HTTP page; EACH=1 compresses it anew for every answer (asynchronously, in libuv's threads), 0 once
const http = require('http'), zlib = require('zlib');
const [, , port, each] = process.argv;
let page = '';
for (let i = 0; i < 350; i++) page += `{"id":${i * 7919 % 4099},"title":"article ${(i * i) % 977}","price":${(i * 37 % 1000) / 10},"stock":${i % 13}},\n`;
const once = zlib.gzipSync(page, { level: 9 });
const answer = (res, body) => { res.writeHead(200, { 'Content-Encoding': 'gzip', 'Content-Length': body.length }); res.end(body); };
http.createServer((req, res) => {
  if (each === '1') zlib.gzip(page, { level: 9 }, (err, body) => answer(res, body));
  else answer(res, once);
}).listen(+port, '127.0.0.1', () => console.log('ready'));
