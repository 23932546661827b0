// shortc PORT THREADS LINE: a connection for each question; the client closes first
#include <arpa/inet.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>
static struct sockaddr_in to; static char line[512]; static int len; static double end;
static double now(void) { struct timespec t; clock_gettime(CLOCK_MONOTONIC, &t); return t.tv_sec + t.tv_nsec / 1e9; }
static void *work(void *a) {
    long n = 0; char b[512];
    while (now() < end) {
        int s = socket(AF_INET, SOCK_STREAM, 0);
        if (connect(s, (void *)&to, sizeof to)) { perror("connect"); exit(1); }
        send(s, line, len, MSG_NOSIGNAL);
        if (recv(s, b, sizeof b, 0) > 0) n++;
        close(s);
    }
    return (void *)n;
}
int main(int c, char **v) {
    to = (struct sockaddr_in){.sin_family = AF_INET, .sin_port = htons(atoi(v[1])), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    len = snprintf(line, sizeof line, "%s\n", v[3]);
    int k = atoi(v[2]); pthread_t t[64]; long n = 0; void *r; double start = now(); end = start + 1.2;
    for (int i = 0; i < k; i++) pthread_create(&t[i], 0, work, 0);
    for (int i = 0; i < k; i++) { pthread_join(t[i], &r); n += (long)r; }
    printf("rate=%.1f\n", n / (now() - start));
}
