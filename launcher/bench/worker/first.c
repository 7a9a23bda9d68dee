/* Writes when it was started (CLOCK_MONOTONIC, in ns) to FOLDER/$RANK, and with a
   second argument waits to be stopped. */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

int main(int argc, char **argv) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  if (argc < 2 || getenv("RANK") == NULL)
    return 64;
  char path[4096];
  snprintf(path, sizeof path, "%s/%s", argv[1], getenv("RANK"));
  FILE *file = fopen(path, "w");
  if (file == NULL || fprintf(file, "%lld\n", now.tv_sec * 1000000000LL + now.tv_nsec) < 0 || fclose(file) != 0) {
    perror(path);
    return 1;
  }
  if (argc > 2)
    pause();
  return 0;
}
