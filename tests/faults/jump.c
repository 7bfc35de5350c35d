/* A preload: the wall clock of a process, moved by the seconds that a file holds. Its monotonic clock stays. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <time.h>

int clock_gettime(clockid_t clock, struct timespec *now) {
    static int (*real)(clockid_t, struct timespec *);
    static volatile long long *seconds;
    if (!real) {
        seconds = mmap(0, 8, PROT_READ, MAP_SHARED, open(getenv("JUMP"), O_RDONLY), 0);
        real = dlsym(RTLD_NEXT, "clock_gettime");
    }
    int code = real(clock, now);
    if (!code && clock == CLOCK_REALTIME) now->tv_sec += *seconds;
    return code;
}

time_t time(time_t *to) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return to ? (*to = now.tv_sec) : now.tv_sec;
}

int gettimeofday(struct timeval *restrict to, void *restrict zone) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    to->tv_sec = now.tv_sec, to->tv_usec = now.tv_nsec / 1000;
    return 0;
}
