const http = require("http")
http.createServer((q, a) => {
  const end = performance.now() + 5
  while (performance.now() < end);
  a.end("done\n")
}).listen({ port: process.argv[2], host: "127.0.0.1", backlog: 4096 })
