// atlas PORT FILE: the file (96 MiB) is mapped; each question reads 8 pages here and there. A thread per connection
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>
static unsigned char *map; static long pages;
__attribute__((noinline)) static unsigned look_up(unsigned *seed) {
    unsigned sum = 0;
    for (int i = 0; i < 8; i++) { *seed = *seed * 1664525 + 1013904223; sum += map[(*seed >> 8) % pages * 4096 + 77]; }
    return sum;
}
static void *client(void *a) {
    int s = (int)(long)a; unsigned seed = s * 77 + time(0); char b[256];
    while (recv(s, b, sizeof b, 0) > 0) { int k = sprintf(b, "%u\n", look_up(&seed)); if (send(s, b, k, MSG_NOSIGNAL) != k) break; }
    close(s); return 0;
}
int main(int n, char **v) {
    int f = open(v[2], O_RDONLY), l = socket(AF_INET, SOCK_STREAM, 0), one = 1; struct stat st; fstat(f, &st); pages = st.st_size / 4096;
    posix_fadvise(f, 0, 0, POSIX_FADV_DONTNEED);             // whoever reads it next is charged for it
    map = mmap(0, st.st_size, PROT_READ, MAP_SHARED | MAP_POPULATE, f, 0);
    if (map == MAP_FAILED) { perror(v[2]); return 1; }
    madvise(map, st.st_size, MADV_RANDOM);
    setsockopt(l, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons(atoi(v[1])), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    if (bind(l, (void *)&a, sizeof a) || listen(l, 64)) { perror("atlas"); return 1; }
    puts("ready"); fflush(stdout);
    for (;;) { int s = accept(l, 0, 0); if (s < 0) continue; pthread_t t; pthread_create(&t, 0, client, (void *)(long)s); pthread_detach(t); }
}
