#include <pthread.h>
#include <stdio.h>

int count(int from, int to);

static void *half(void *sum)
{
    *(int *)sum = count(0, 50);
    return NULL;
}

int main(void)
{
    pthread_t thread;
    int sum = 0;
    if (pthread_create(&thread, NULL, half, &sum) != 0 || pthread_join(thread, NULL) != 0)
        return 1;
    printf("%d\n", sum + count(50, 101));
    return 0;
}
