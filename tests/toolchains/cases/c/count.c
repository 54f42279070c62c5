int count(int from, int to)
{
    int sum = 0;
    while (from < to)
        sum += from++;
    return sum;
}
