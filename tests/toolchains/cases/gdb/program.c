#include <stdio.h>

static int inner(int number, const int *at)
{
    return number + *at;
}

int main(int count, char **words)
{
    (void)words;
    printf("%d\n", inner(41, count > 1 ? NULL : &count));
    return 0;
}
