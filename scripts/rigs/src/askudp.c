// askudp PORT: one question on its way; looks by select() with a time-out of 5 ms, again and again, until the answer is there
#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <time.h>
static double now(void) { struct timespec t; clock_gettime(CLOCK_MONOTONIC, &t); return t.tv_sec + t.tv_nsec / 1e9; }
int main(int c, char **v) {
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(atoi(v[1])), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int s = socket(AF_INET, SOCK_DGRAM, 0); connect(s, (void *)&to, sizeof to);
    double start = now(); unsigned n = 0; long timeouts = 0; char b[64] = {0};
    while (now() - start < 1.2) {
        memcpy(b, &n, 4); send(s, b, sizeof b, 0);
        for (;;) {
            fd_set in; FD_ZERO(&in); FD_SET(s, &in); struct timeval five = {0, 5000};
            if (select(s + 1, &in, 0, 0, &five) > 0) break;
            timeouts++;                       // nothing yet: show "please wait", look again
        }
        if (recv(s, b, sizeof b, 0) >= 12) n++;
    }
    fprintf(stderr, "timeouts=%ld\n", timeouts);
    printf("rate=%.1f\n", n / (now() - start));
}
