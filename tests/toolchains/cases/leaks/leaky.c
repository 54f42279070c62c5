#include <stdlib.h>
#include <string.h>

static void lose(void)
{
    volatile char *lost = malloc(123);
    lost[0] = 1;
}

int main(void)
{
    char stack[4096];
    lose();
    memset(stack, 0, sizeof stack);
    return stack[0];
}
