// backend.js PORT MS: HTTP; each answer is given after MS milliseconds
const http = require('http'); const ms = Number(process.argv[3]);
http.createServer((q, r) => { if (ms) setTimeout(() => r.end('here it is\n'), ms); else r.end('here it is\n'); })
  .listen(Number(process.argv[2]), '127.0.0.1', () => console.log('ready'));
