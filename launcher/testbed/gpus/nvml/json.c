// Reads JSON into a sorted list of paths and texts. Numbers, true and false are kept as
// they stand; null leaves no trace; each list and object leaves its size under its own path.
#include "standin.h"

struct reader {
  const char *at;
  struct table *into;
  char path[512];
};

static int value(struct reader *r, size_t depth);

static void blanks(struct reader *r) { r->at += strspn(r->at, " \t\r\n"); }

static void add(struct reader *r, char *text) {
  struct table *t = r->into;
  if (t->count == t->room) {
    t->room = t->room ? 2 * t->room : 256;
    t->pairs = realloc(t->pairs, t->room * sizeof *t->pairs);
    if (!t->pairs) abort();
  }
  t->pairs[t->count++] = (struct pair){strdup(r->path), text};
}

// string reads from behind the opening quote. Characters beyond ASCII that are escaped do
// not occur in what Go writes, but for a few that no name has.
static char *string(struct reader *r) {
  char *text = malloc(strlen(r->at) + 1), *end = text;
  while (*r->at && *r->at != '"') {
    char c = *r->at++;
    if (c != '\\') {
      *end++ = c;
      continue;
    }
    switch (c = *r->at++) {
      case 'n': *end++ = '\n'; break;
      case 't': *end++ = '\t'; break;
      case 'r': *end++ = '\r'; break;
      case 'b': *end++ = '\b'; break;
      case 'f': *end++ = '\f'; break;
      case 'u': {
        char digits[5] = {0};
        strncpy(digits, r->at, 4);
        long code = strtol(digits, NULL, 16);
        *end++ = code < 128 ? (char)code : '?';
        r->at += strlen(digits);
        break;
      }
      case 0: r->at--; break;
      default: *end++ = c;
    }
  }
  *end = 0;
  if (*r->at == '"') {
    r->at++;
    return text;
  }
  free(text);
  return NULL;
}

static int member(struct reader *r, size_t depth, const char *name) {
  size_t room = sizeof r->path - depth;
  int n = snprintf(r->path + depth, room, depth ? ".%s" : "%s", name);
  if (n < 0 || (size_t)n >= room) return -1;
  int bad = value(r, depth + n);
  r->path[depth] = 0;
  return bad;
}

// many reads the members of a list or an object, from behind the opening bracket.
static int many(struct reader *r, size_t depth, char close) {
  int n = 0;
  char size[16];
  for (blanks(r); *r->at != close; blanks(r)) {
    if (n && *r->at++ != ',') return -1;
    blanks(r);
    snprintf(size, sizeof size, "%d", n);
    char *name = size;
    if (close == '}') {
      if (*r->at++ != '"' || !(name = string(r))) return -1;
      blanks(r);
      if (*r->at++ != ':') {
        free(name);
        return -1;
      }
    }
    int bad = member(r, depth, name);
    if (name != size) free(name);
    if (bad) return -1;
    n++;
  }
  r->at++;
  snprintf(size, sizeof size, "%d", n);
  add(r, strdup(size));
  return 0;
}

static int value(struct reader *r, size_t depth) {
  blanks(r);
  char c = *r->at;
  if (c == '{' || c == '[') {
    r->at++;
    return many(r, depth, c == '{' ? '}' : ']');
  }
  if (c == '"') {
    r->at++;
    char *text = string(r);
    if (!text) return -1;
    add(r, text);
    return 0;
  }
  size_t n = strcspn(r->at, ",]} \t\r\n");
  if (n == 0) return -1;
  if (n != 4 || strncmp(r->at, "null", 4)) add(r, strndup(r->at, n));
  r->at += n;
  return 0;
}

static int by_path(const void *a, const void *b) {
  return strcmp(((const struct pair *)a)->path, ((const struct pair *)b)->path);
}

int json_read(struct table *into, const char *text) {
  struct reader r = {.at = text, .into = into};
  if (value(&r, 0)) return -1;
  qsort(into->pairs, into->count, sizeof *into->pairs, by_path);
  return 0;
}

void table_free(struct table *t) {
  for (int i = 0; i < t->count; i++) {
    free(t->pairs[i].path);
    free(t->pairs[i].text);
  }
  free(t->pairs);
  *t = (struct table){0};
}

const char *table_get(const struct table *t, const char *path) {
  struct pair key = {.path = (char *)path};
  struct pair *found = t->count ? bsearch(&key, t->pairs, t->count, sizeof key, by_path) : NULL;
  return found ? found->text : NULL;
}
