// onced IP PORT: one thread; accept, a line in, a line out, close
#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>
int main(int n, char **v) {
    int l = socket(AF_INET, SOCK_STREAM, 0), one = 1; char b[512];
    setsockopt(l, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons(atoi(v[2]))}; inet_pton(AF_INET, v[1], &a.sin_addr);
    if (bind(l, (void *)&a, sizeof a) || listen(l, 128)) { perror("onced"); return 1; }
    puts("ready"); fflush(stdout);
    for (;;) { int s = accept(l, 0, 0); if (s < 0) continue; if (recv(s, b, sizeof b, 0) > 0) send(s, "12.50\n", 6, MSG_NOSIGNAL); close(s); }
}
