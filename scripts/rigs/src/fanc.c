// fanc IP:PORT|/PATH K LINE: one thread, epoll, K connections with one question each on its way, for 1.2 s
#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>
static double now(void) { struct timespec t; clock_gettime(CLOCK_MONOTONIC, &t); return t.tv_sec + t.tv_nsec / 1e9; }
static int dial(char *at) {
    struct sockaddr_un u = {.sun_family = AF_UNIX}; struct sockaddr_in a = {.sin_family = AF_INET};
    int s = socket(*at == '/' ? AF_UNIX : AF_INET, SOCK_STREAM, 0), r;
    if (*at == '/') strncpy(u.sun_path, at, sizeof u.sun_path - 1), r = connect(s, (void *)&u, sizeof u);
    else {
        char ip[64]; strncpy(ip, at, 63); char *c = strchr(ip, ':'); *c = 0;
        a.sin_port = htons(atoi(c + 1)); inet_pton(AF_INET, ip, &a.sin_addr); r = connect(s, (void *)&a, sizeof a);
    }
    if (r) { perror("connect"); exit(1); }
    return s;
}
int main(int c, char **v) {
    int e = epoll_create1(0), k = atoi(v[2]), i; long n = 0; char line[512], b[65536];
    int len = snprintf(line, sizeof line, "%s\r\n", v[3]);
    struct epoll_event ev = {.events = EPOLLIN}, got[64];
    for (i = 0; i < k; i++) { ev.data.fd = dial(v[1]); epoll_ctl(e, EPOLL_CTL_ADD, ev.data.fd, &ev); send(ev.data.fd, line, len, 0); }
    double start = now(), t;
    while ((t = now()) - start < 1.2) {
        int m = epoll_wait(e, got, 64, (int)((1.2 - (t - start)) * 1000) + 1);
        for (i = 0; i < m; i++) {
            ssize_t r = recv(got[i].data.fd, b, sizeof b, 0);
            if (r <= 0) { fprintf(stderr, "server closed\n"); return 1; }
            if (b[r - 1] == '\n') { n++; send(got[i].data.fd, line, len, MSG_NOSIGNAL); }
        }
    }
    printf("rate=%.1f\n", n / (now() - start));
}
