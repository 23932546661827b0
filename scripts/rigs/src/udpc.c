// udpc PORT: bursts of 24 datagrams; waits until all are back, or 15 ms without one; answers per second
#include <arpa/inet.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
static double now(void) { struct timespec t; clock_gettime(CLOCK_MONOTONIC, &t); return t.tv_sec + t.tv_nsec / 1e9; }
int main(int c, char **v) {
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(atoi(v[1])), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int s = socket(AF_INET, SOCK_DGRAM, 0); connect(s, (void *)&to, sizeof to);
    double start = now(); long n = 0; int burst = 0; char b[64] = {0}, r[64];
    while (now() - start < 1.2) {
        burst++; memcpy(b, &burst, 4);
        for (int i = 0; i < 24; i++) send(s, b, sizeof b, 0);
        for (int got = 0; got < 24;) {
            struct pollfd p = {.fd = s, .events = POLLIN};
            if (poll(&p, 1, 15) <= 0) break;
            if (recv(s, r, sizeof r, 0) == sizeof r && !memcmp(r, b, 4)) { got++; n++; }
        }
    }
    printf("rate=%.1f\n", n / (now() - start));
}
