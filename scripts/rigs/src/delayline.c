// delayline NS_A NS_B MS: a wire with delay: device d0 in both namespaces (TUN), each packet goes across after MS ms (a queue of 4096)
#define _GNU_SOURCE
#include <fcntl.h>
#include <linux/if.h>
#include <linux/if_tun.h>
#include <poll.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>
#define Q 4096
static struct { double at; int n; char b[1600]; } q[2][Q]; static unsigned head[2], tail[2];
static double now(void) { struct timespec t; clock_gettime(CLOCK_MONOTONIC, &t); return t.tv_sec + t.tv_nsec / 1e9; }
static int tun(const char *ns) {
    char p[128]; snprintf(p, sizeof p, "/run/netns/%s", ns); int n = open(p, O_RDONLY);
    if (n < 0 || setns(n, CLONE_NEWNET)) { perror(p); exit(1); }
    close(n); int f = open("/dev/net/tun", O_RDWR | O_NONBLOCK);
    struct ifreq r = {.ifr_flags = IFF_TUN | IFF_NO_PI}; strcpy(r.ifr_name, "d0");
    if (f < 0 || ioctl(f, TUNSETIFF, &r)) { perror("tun"); exit(1); }
    return f;
}
int main(int c, char **v) {
    int f[2] = {tun(v[1]), tun(v[2])}; double wait = atof(v[3]) / 1e3; prctl(PR_SET_TIMERSLACK, 1000);
    puts("ready"); fflush(stdout);
    for (;;) {
        struct pollfd p[2]; double t = now(), next = t + 1;
        for (int i = 0; i < 2; i++) {
            p[i].fd = f[i]; p[i].events = tail[i] - head[i] < Q ? POLLIN : 0;
            if (head[i] != tail[i] && q[i][head[i] % Q].at < next) next = q[i][head[i] % Q].at;
        }
        struct timespec s = {0, next > t ? (long)((next - t) * 1e9) : 0}; if (s.tv_nsec > 999999999) s.tv_nsec = 999999999;
        ppoll(p, 2, &s, 0); t = now();
        for (int i = 0; i < 2; i++) {
            int n; while (tail[i] - head[i] < Q && (n = read(f[i], q[i][tail[i] % Q].b, 1600)) > 0) q[i][tail[i] % Q].n = n, q[i][tail[i]++ % Q].at = t + wait;
            while (head[i] != tail[i] && q[i][head[i] % Q].at <= t) { if (write(f[!i], q[i][head[i] % Q].b, q[i][head[i] % Q].n) < 0) {} head[i]++; }
        }
    }
}
