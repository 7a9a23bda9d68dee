// What processes hold: those of the scenario, and those that noted themselves in the
// folder "state" and are still the same processes.
#include <dirent.h>
#include <poll.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "standin.h"

char *read_file(const char *path) {
  FILE *f = fopen(path, "r");
  if (!f) return NULL;
  size_t room = 1 << 16, used = 0, n;
  char *text = malloc(room);
  while (text && (n = fread(text + used, 1, room - used - 1, f)) > 0) {
    used += n;
    if (room - used < 2) text = realloc(text, room *= 2);
  }
  fclose(f);
  if (text) text[used] = 0;
  return text;
}

// same tells whether a process is there that started at that time: field 22 of
// /proc/PID/stat. A zombie holds no memory.
static int same(unsigned int pid, unsigned long long start) {
  char path[64], state = 0;
  unsigned long long is = 0;
  snprintf(path, sizeof path, "/proc/%u/stat", pid);
  char *text = read_file(path), *rest = text ? strrchr(text, ')') : NULL;
  int read = rest ? sscanf(rest + 1, " %c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %*u %*u %*d %*d %*d %*d %*d %*d %llu", &state, &is) : 0;
  free(text);
  return read == 2 && is == start && state != 'Z' && state != 'X';
}

static int place(struct holder *h) {
  for (int gpu = 0; gpu < gpu_count(); gpu++) {
    const char *uuid = look("gpus.%d.uuid", gpu);
    if (uuid && !strcmp(uuid, h->uuid)) {
      h->gpu = gpu;
      return 1;
    }
    for (int i = 0; i < instance_count(gpu); i++) {
      uuid = look("gpus.%d.mig.instances.%d.uuid", gpu, i);
      if (uuid && !strcmp(uuid, h->uuid)) {
        h->gpu = gpu;
        h->mig = i;
        h->gi = (unsigned int)num(look("gpus.%d.mig.instances.%d.gi", gpu, i));
        h->ci = (unsigned int)num(look("gpus.%d.mig.instances.%d.ci", gpu, i));
        return 1;
      }
    }
  }
  return 0;
}

static void copy(char *into, size_t room, const char *text) { snprintf(into, room, "%s", text ? text : ""); }

static struct holder *more(struct holder **list, int n) {
  *list = realloc(*list, (n + 1) * sizeof **list);
  if (!*list) abort();
  (*list)[n] = (struct holder){.mig = -1, .gi = 0xFFFFFFFF, .ci = 0xFFFFFFFF};
  return *list + n;
}

static int listed(struct holder **list) {
  int n = 0;
  for (int gpu = 0; gpu < gpu_count(); gpu++) {
    int processes = (int)num(look("gpus.%d.processes", gpu));
    for (int i = 0; i < processes; i++) {
      struct holder *h = more(list, n++);
      h->gpu = gpu;
      h->pid = (unsigned int)num(look("gpus.%d.processes.%d.pid", gpu, i));
      copy(h->kind, sizeof h->kind, look("gpus.%d.processes.%d.kind", gpu, i));
      copy(h->name, sizeof h->name, look("gpus.%d.processes.%d.name", gpu, i));
      const char *bytes = look("gpus.%d.processes.%d.memory", gpu, i), *gi = look("gpus.%d.processes.%d.gi", gpu, i);
      h->has_bytes = bytes != NULL;
      h->bytes = num(bytes);
      if (!gi) continue;
      h->gi = (unsigned int)num(gi);
      h->ci = (unsigned int)num(look("gpus.%d.processes.%d.ci", gpu, i));
      for (int mig = 0; mig < instance_count(gpu); mig++)
        if (num(look("gpus.%d.mig.instances.%d.gi", gpu, mig)) == h->gi &&
            num(look("gpus.%d.mig.instances.%d.ci", gpu, mig)) == h->ci)
          h->mig = mig;
    }
  }
  return n;
}

// note reads the note of a process; 0: it does not count.
static int note(const char *path, struct holder *h) {
  char *text = read_file(path);
  struct table t = {0};
  int counts = text && !json_read(&t, text);
  free(text);
  if (counts) {
    h->pid = (unsigned int)num(table_get(&t, "pid"));
    h->bytes = num(table_get(&t, "bytes"));
    h->has_bytes = 1;
    copy(h->uuid, sizeof h->uuid, table_get(&t, "uuid"));
    copy(h->kind, sizeof h->kind, table_get(&t, "kind"));
    copy(h->name, sizeof h->name, table_get(&t, "name"));
    counts = same(h->pid, num(table_get(&t, "start"))) && place(h);
  }
  table_free(&t);
  return counts;
}

// What the notes said when they were read last. The driver knows all that without reading
// files: what it costs to ask it is measured by this library too.
static struct {
  struct timespec changed; // of the folder when they were read
  int scenario;            // in force then
  int valid, n;
  struct holder *list;
  struct pollfd *ends; // of the processes
} notes;

enum { COARSE = 50 }; // milliseconds within which two changes of a folder may have one time

static void forget(void) {
  for (int i = 0; i < notes.n; i++) close(notes.ends[i].fd);
  free(notes.list);
  free(notes.ends);
  memset(&notes, 0, sizeof notes);
}

// hold keeps a note as long as its process is there.
static void hold(const char *path) {
  struct holder *h = more(&notes.list, notes.n);
  if (!note(path, h)) return;
  int end = (int)syscall(SYS_pidfd_open, h->pid, 0);
  if (end < 0) notes.valid = 0; // it is read again the next time
  notes.ends = realloc(notes.ends, (notes.n + 1) * sizeof *notes.ends);
  if (!notes.ends) abort();
  notes.ends[notes.n++] = (struct pollfd){.fd = end, .events = POLLIN};
}

static void read_notes(const struct stat *of) {
  struct timespec now;
  char path[1024];
  forget();
  clock_gettime(CLOCK_REALTIME, &now);
  notes.changed = of->st_mtim;
  notes.scenario = scenario_number();
  notes.valid = (now.tv_sec - of->st_mtim.tv_sec) * 1000 + (now.tv_nsec - of->st_mtim.tv_nsec) / 1000000 > COARSE;
  snprintf(path, sizeof path, "%s/state", folder());
  struct dirent **names;
  int found = scandir(path, &names, NULL, alphasort);
  for (int i = 0; i < found; i++) {
    char first = names[i]->d_name[0];
    if (first >= '0' && first <= '9') {
      snprintf(path, sizeof path, "%s/state/%s", folder(), names[i]->d_name);
      hold(path);
    }
    free(names[i]);
  }
  if (found >= 0) free(names);
}

// refresh_notes reads them where something may have changed.
static void refresh_notes(void) {
  struct stat now;
  char path[1024];
  snprintf(path, sizeof path, "%s/state", folder());
  if (stat(path, &now)) {
    forget();
    return;
  }
  if (!notes.valid || notes.scenario != scenario_number() || now.st_mtim.tv_sec != notes.changed.tv_sec ||
      now.st_mtim.tv_nsec != notes.changed.tv_nsec || poll(notes.ends, notes.n, 0) != 0)
    read_notes(&now);
}

int holders(struct holder **list) {
  *list = NULL;
  int n = listed(list);
  refresh_notes();
  for (int i = 0; i < notes.n; i++) *more(list, n++) = notes.list[i];
  return n;
}

// used_by adds up the memory of the processes of a GPU, or of a MIG instance: compute
// instances of one GPU instance share its memory.
unsigned long long used_by(int gpu, int mig) {
  struct holder *list;
  int n = holders(&list);
  unsigned long long used = mig < 0 ? num(look("gpus.%d.unexplained", gpu)) : 0;
  unsigned int gi = mig < 0 ? 0 : (unsigned int)num(look("gpus.%d.mig.instances.%d.gi", gpu, mig));
  for (int i = 0; i < n; i++)
    if (list[i].gpu == gpu && (mig < 0 || list[i].gi == gi)) used += list[i].bytes;
  free(list);
  return used;
}

int events(struct event **list) {
  char path[1024];
  int n = 0;
  *list = NULL;
  snprintf(path, sizeof path, "%s/state", folder());
  struct dirent **names;
  int found = scandir(path, &names, NULL, alphasort);
  for (int i = 0; i < found; i++) {
    if (!strncmp(names[i]->d_name, "event-", 6)) {
      snprintf(path, sizeof path, "%s/state/%s", folder(), names[i]->d_name);
      char *text = read_file(path);
      struct table t = {0};
      struct holder h = {.mig = -1};
      if (text && !json_read(&t, text)) {
        copy(h.uuid, sizeof h.uuid, table_get(&t, "uuid"));
        if (place(&h)) {
          *list = realloc(*list, (n + 1) * sizeof **list);
          if (!*list) abort();
          struct event *e = *list + n++;
          copy(e->name, sizeof e->name, names[i]->d_name);
          e->gpu = h.gpu;
          e->xid = num(table_get(&t, "xid"));
          const char *ecc = table_get(&t, "ecc");
          e->type = !ecc ? nvmlEventTypeXidCriticalError : !strcmp(ecc, "double_bit") ? nvmlEventTypeDoubleBitEccError : nvmlEventTypeSingleBitEccError;
        }
      }
      free(text);
      table_free(&t);
    }
    free(names[i]);
  }
  if (found >= 0) free(names);
  return n;
}
