/* Lets every third send or receive call on datagrams fail, each with the next error number, except
 * those that show a defect of the program. REFUSE names the calls: "send", "receive" or both. At the
 * end their number is written to the file REFUSED. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

static int calls, refused;

static int refuses(const char *kind, int fd) {
    const char *kinds = getenv("REFUSE");
    int type = 0;
    socklen_t len = sizeof type;
    if (!kinds || !strstr(kinds, kind) || getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &len) ||
        type != SOCK_DGRAM || ++calls % 3) {
        return 0;
    }
    do {
        errno = ++refused % 133 + 1;
    } while (errno == EBADF || errno == EFAULT || errno == ENOTSOCK);
    return 1;
}

ssize_t sendmsg(int fd, const struct msghdr *message, int flags) {
    static ssize_t (*real)(int, const struct msghdr *, int);
    if (!real) real = (ssize_t(*)(int, const struct msghdr *, int))dlsym(RTLD_NEXT, "sendmsg");
    return refuses("send", fd) ? -1 : real(fd, message, flags);
}

int recvmmsg(int fd, struct mmsghdr *messages, unsigned count, int flags, struct timespec *timeout) {
    static int (*real)(int, struct mmsghdr *, unsigned, int, struct timespec *);
    if (!real) {
        real = (int (*)(int, struct mmsghdr *, unsigned, int, struct timespec *))dlsym(RTLD_NEXT, "recvmmsg");
    }
    return refuses("receive", fd) ? -1 : real(fd, messages, count, flags, timeout);
}

__attribute__((destructor)) static void report(void) {
    const char *path = getenv("REFUSED");
    FILE *file = path ? fopen(path, "w") : 0;
    if (file) {
        fprintf(file, "%d\n", refused);
        fclose(file);
    }
}
