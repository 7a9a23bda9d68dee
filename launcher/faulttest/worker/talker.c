/* A rank that writes numbered lines to both streams and keeps count of those that write(2)
   has taken, in a file that outlives it: what the count says must be in the rank's log,
   whatever killed the rank.

   talker FOLDER SEED PAUSE TERM DAEMON [TIME STATUSES]
     PAUSE   microseconds between two lines, on average
     TERM    what it does on SIGTERM: default, catch (writes on, then exits 0), fail (writes
             on, then exits 3), ignore
     DAEMON  none, or a letter each for what its double-forked child in a session of its own
             does: i ignores SIGTERM, o keeps the output open; - neither

     TIME    makes it a task, which ends by itself after so many milliseconds,
     STATUSES  with these exit statuses: of its first attempt, of its second, ...

   FOLDER/control holds one number that the test changes: not 0 ends the rank well. A task
   adds a line to FOLDER/lines-HOST when it begins and, unless it was asked to end, when it
   ends, each by one write; it holds a lock meanwhile, and says so when another has it. Each
   line of output is of letters that belong to its stream alone, so that the test can tell the
   streams apart however they lie in the file. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { LIFE = 150, MOST = 3000, LAST_WORDS = 50 };

struct record {
  int64_t pid, lines[2], daemon;
};

static volatile sig_atomic_t asked;
static const char *folder, *rank, *attempt;
static int lock = -1; /* a task's; it goes with the task, and not with its children */

static void on_term(int signal) { asked = signal; }

static void *map(const char *path, int flags, size_t size) {
  int fd = open(path, flags, 0644);
  if (fd < 0 || ((flags & O_CREAT) && ftruncate(fd, size) != 0)) {
    perror(path);
    exit(70);
  }
  int protection = (flags & O_ACCMODE) == O_RDONLY ? PROT_READ : PROT_READ | PROT_WRITE;
  void *at = mmap(NULL, size, protection, MAP_SHARED, fd, 0);
  close(fd);
  if (at == MAP_FAILED) {
    perror(path);
    exit(70);
  }
  return at;
}

/* detach leaves a grandchild that belongs to nobody here. */
static void detach(const char *how, struct record *record) {
  pid_t child = fork();
  if (child > 0) {
    waitpid(child, NULL, 0);
    return;
  }
  close(lock);
  setsid();
  if (fork() != 0)
    _exit(0);
  signal(SIGTERM, strchr(how, 'i') ? SIG_IGN : SIG_DFL);
  if (!strchr(how, 'o')) {
    close(1);
    close(2);
  }
  record->daemon = getpid();
  alarm(LIFE);
  for (;;)
    pause();
}

/* length of line n; most are short, some are long. */
static int length(long n) { return n % 97 == 13 ? MOST : 12 + (int)(n * 7919 % 180); }

/* say writes line n of a stream: a number of eight digits, filling, an end. */
static void say(struct record *record, int lane) {
  static char line[MOST + 1];
  long n = record->lines[lane];
  int size = length(n);
  char digit = lane ? 'A' : '0', filling = lane ? 'K' : 'a', end = lane ? ':' : ';';
  for (int i = 7, rest = n; i >= 0; i--, rest /= 10)
    line[i] = digit + rest % 10;
  memset(line + 8, filling + n % 16, size - 9);
  line[size - 1] = end;
  line[size] = '\n';
  ssize_t written;
  do
    written = write(1 + lane, line, size + 1); /* less than PIPE_BUF: all or nothing */
  while (written < 0 && errno == EINTR && !asked);
  if (written == size + 1)
    record->lines[lane] = n + 1;
}

/* tell adds a line about the task: what, which, a number, when (in ns). */
static void tell(const char *what, long number) {
  char path[4096], host[65], line[256];
  struct timespec now;
  if (gethostname(host, sizeof host) != 0 || clock_gettime(CLOCK_MONOTONIC, &now) != 0)
    exit(70);
  snprintf(path, sizeof path, "%s/lines-%s", folder, host);
  int size = snprintf(line, sizeof line, "%s %s %s %ld %lld\n", what, rank, attempt, number, now.tv_sec * 1000000000LL + now.tv_nsec);
  int fd = open(path, O_WRONLY | O_CREAT | O_APPEND, 0644);
  if (fd < 0 || write(fd, line, size) != size) {
    perror(path);
    exit(70);
  }
  close(fd);
}

static void begin_task(void) {
  char path[4096];
  tell("begin", getpid());
  snprintf(path, sizeof path, "%s/lock-%s", folder, rank);
  lock = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0644);
  if (lock < 0 || flock(lock, LOCK_EX | LOCK_NB) != 0)
    tell("twice", errno);
}

/* status_of finds the status of this attempt; the last one stands for all that follow. */
static int status_of(const char *statuses) {
  for (int n = atoi(attempt); n > 0 && strchr(statuses, ','); n--)
    statuses = strchr(statuses, ',') + 1;
  return atoi(statuses);
}

static long long now_ms(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return now.tv_sec * 1000LL + now.tv_nsec / 1000000;
}

int main(int argc, char **argv) {
  int is_task = argc == 8;
  rank = getenv(is_task ? "MUSTER_RANK" : "RANK");
  attempt = getenv(is_task ? "MUSTER_ATTEMPT" : "TORCHELASTIC_RESTART_COUNT");
  if ((argc != 6 && !is_task) || !rank || !attempt)
    return 64;
  folder = argv[1];
  if (is_task)
    begin_task();
  char path[4096];
  snprintf(path, sizeof path, "%s/control", argv[1]);
  volatile int64_t *control = map(path, O_RDONLY, sizeof *control);
  snprintf(path, sizeof path, "%s/rank-%s.%s", folder, rank, attempt);
  struct record *record = map(path, O_RDWR | O_CREAT | O_EXCL, sizeof *record);
  srandom(atoi(argv[2]) * 64 + atoi(rank));
  int pause_us = atoi(argv[3]);
  if (!strcmp(argv[4], "ignore"))
    signal(SIGTERM, SIG_IGN);
  else if (strcmp(argv[4], "default"))
    sigaction(SIGTERM, &(struct sigaction){.sa_handler = on_term}, NULL);
  record->pid = getpid();
  if (strcmp(argv[5], "none"))
    detach(argv[5], record);
  time_t end = time(NULL) + LIFE;
  long long done = now_ms() + (is_task ? atoi(argv[6]) : LIFE * 1000LL);
  while (!*control && !asked && time(NULL) < end && now_ms() < done) {
    say(record, random() % 2);
    if (random() % 8 == 0) /* in bursts, */
      usleep(random() % (16 * pause_us));
    if (random() % 1024 == 0) /* now and then more than a pipe holds */
      for (int i = 0; i < 1000; i++)
        say(record, random() % 2);
  }
  int was_asked = asked;
  asked = 0;
  for (int i = 0; i < LAST_WORDS; i++)
    say(record, i % 2);
  if (is_task && !was_asked) {
    int status = status_of(argv[7]);
    tell("end", status);
    return status;
  }
  if (!*control && !strcmp(argv[4], "fail"))
    return 3;
  return time(NULL) < end ? 0 : 99;
}
