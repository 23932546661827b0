// lockd PORT LOCK: a thread per connection; with LOCK=1 every send is under one mutex
#include <arpa/inet.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>
static pthread_mutex_t publish_lock = PTHREAD_MUTEX_INITIALIZER;
static int locked;
static char bulk[262144];
static int send_all(int s, const char *p, size_t n) {
    while (n) { ssize_t k = send(s, p, n, MSG_NOSIGNAL); if (k <= 0) return -1; p += k; n -= k; }
    return 0;
}
__attribute__((noinline)) static int publish(int s, size_t n) {
    if (locked) pthread_mutex_lock(&publish_lock);
    int r = send_all(s, bulk, n);
    if (locked) pthread_mutex_unlock(&publish_lock);
    return r;
}
static void *client(void *a) {
    int s = (int)(long)a; char c;
    while (recv(s, &c, 1, 0) == 1) if (publish(s, c == 's' ? sizeof bulk : 512)) break;
    close(s); return 0;
}
int main(int n, char **v) {
    int l = socket(AF_INET, SOCK_STREAM, 0), one = 1, b = 32768; locked = atoi(v[2]);
    setsockopt(l, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    setsockopt(l, SOL_SOCKET, SO_SNDBUF, &b, sizeof b);
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons(atoi(v[1])), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    if (bind(l, (void *)&a, sizeof a) || listen(l, 64)) { perror("lockd"); return 1; }
    puts("ready"); fflush(stdout);
    for (;;) { int s = accept(l, 0, 0); if (s < 0) continue; pthread_t t; pthread_create(&t, 0, client, (void *)(long)s); pthread_detach(t); }
}
