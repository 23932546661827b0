// inetd PORT BACKLOG: forks a process for each connection, as of old; it answers after 3 ms and waits until the client has closed
#include <arpa/inet.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>
int main(int n, char **v) {
    int l = socket(AF_INET, SOCK_STREAM, 0), one = 1; char b[512]; signal(SIGCHLD, SIG_IGN);
    setsockopt(l, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons(atoi(v[1])), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    if (bind(l, (void *)&a, sizeof a) || listen(l, atoi(v[2]))) { perror("inetd"); return 1; }
    puts("ready"); fflush(stdout);
    for (;;) {
        int s = accept(l, 0, 0); if (s < 0) continue;
        if (!fork()) {
            close(l); alarm(5);
            if (recv(s, b, sizeof b, 0) > 0) { usleep(3000); send(s, "served\n", 7, MSG_NOSIGNAL); recv(s, b, 1, 0); }
            _exit(0);
        }
        close(s);
    }
}
