// linec IP PORT THREADS LINE: each thread sends LINE\r\n and reads up to the next newline, for 1.2 s
#include <arpa/inet.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>
static struct sockaddr_in to; static char line[256]; static int len; static double end;
static double now(void) { struct timespec t; clock_gettime(CLOCK_MONOTONIC, &t); return t.tv_sec + t.tv_nsec / 1e9; }
static void *work(void *a) {
    long n = 0; char b[4096]; int s = socket(AF_INET, SOCK_STREAM, 0);
    if (connect(s, (void *)&to, sizeof to)) { perror("connect"); exit(1); }
    while (now() < end) {
        if (send(s, line, len, 0) != len) break;
        ssize_t k; do { k = recv(s, b, sizeof b, 0); } while (k > 0 && b[k - 1] != '\n');
        if (k <= 0) break;
        n++;
    }
    close(s); return (void *)n;
}
int main(int c, char **v) {
    to.sin_family = AF_INET; to.sin_port = htons(atoi(v[2])); inet_pton(AF_INET, v[1], &to.sin_addr);
    len = snprintf(line, sizeof line, "%s\r\n", v[4]);
    int k = atoi(v[3]); pthread_t t[64]; long n = 0; void *r; double start = now(); end = start + 1.2;
    for (int i = 0; i < k; i++) pthread_create(&t[i], 0, work, 0);
    for (int i = 0; i < k; i++) { pthread_join(t[i], &r); n += (long)r; }
    printf("rate=%.1f\n", n / (now() - start));
}
