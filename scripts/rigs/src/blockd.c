// blockd PATH: UNIX stream socket, a thread per connection; 8 bytes in, 4096 bytes out
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>
static char block[4096];
static void *client(void *a) {
    int s = (int)(long)a; char q[8];
    while (recv(s, q, 8, MSG_WAITALL) == 8) if (send(s, block, 4096, MSG_NOSIGNAL) != 4096) break;
    close(s); return 0;
}
int main(int n, char **v) {
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    strncpy(a.sun_path, v[1], sizeof a.sun_path - 1); unlink(v[1]);
    for (int i = 0; i < 4096; i++) block[i] = i * 7;
    int l = socket(AF_UNIX, SOCK_STREAM, 0);
    if (bind(l, (void *)&a, sizeof a) || listen(l, 16)) { perror("blockd"); return 1; }
    puts("ready"); fflush(stdout);
    for (;;) { int s = accept(l, 0, 0); if (s < 0) continue; pthread_t t; pthread_create(&t, 0, client, (void *)(long)s); pthread_detach(t); }
}
