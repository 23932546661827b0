// logd PORT LOGGER...: one thread, epoll; a log line for each request goes into a pipe to LOGGER
#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>
static int log_pipe;
static long serial;
__attribute__((noinline)) static void write_access_log(int s) {
    char l[256]; memset(l, '-', sizeof l);
    snprintf(l, 60, "request %ld of connection %d", ++serial, s); l[strlen(l)] = ' '; l[199] = '\n';
    if (write(log_pipe, l, 200) != 200) exit(1);
}
int main(int n, char **v) {
    int p[2]; if (pipe(p)) return 1;
    if (fork() == 0) { prctl(PR_SET_PDEATHSIG, SIGKILL); dup2(p[0], 0); close(p[0]); close(p[1]); execvp(v[2], v + 2); _exit(1); }
    close(p[0]); log_pipe = p[1];
    int l = socket(AF_INET, SOCK_STREAM, 0), one = 1, e = epoll_create1(0);
    setsockopt(l, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons(atoi(v[1])), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    if (bind(l, (void *)&a, sizeof a) || listen(l, 64)) { perror("logd"); return 1; }
    struct epoll_event ev = {.events = EPOLLIN, .data.fd = l}, got[16]; epoll_ctl(e, EPOLL_CTL_ADD, l, &ev);
    puts("ready"); fflush(stdout);
    for (;;) {
        int k = epoll_wait(e, got, 16, -1);
        for (int i = 0; i < k; i++) {
            int s = got[i].data.fd; char b[512];
            if (s == l) { ev.data.fd = accept(l, 0, 0); epoll_ctl(e, EPOLL_CTL_ADD, ev.data.fd, &ev); continue; }
            if (recv(s, b, sizeof b, 0) <= 0) { close(s); continue; }
            write_access_log(s);
            send(s, "ok\n", 3, MSG_NOSIGNAL);
        }
    }
}
