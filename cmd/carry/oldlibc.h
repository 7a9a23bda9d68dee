// Put before every C file of a program that uses cgo, so that it runs with older C libraries
// than the one here: functions that glibc 2.32 and 2.34 gave a new version, without another
// meaning, are asked for by their first one (2.2.5 on x86_64, 2.17 on aarch64, which
// distributions of the last ten years all have). They were in libpthread and libdl then,
// which the program must therefore be linked with; today these are empty.
#ifndef __ASSEMBLER__
#ifdef __x86_64__
#define FIRST "GLIBC_2.2.5"
#define FIRST_DLINFO "GLIBC_2.3.3"
#else
#define FIRST "GLIBC_2.17"
#define FIRST_DLINFO FIRST
#endif
#define ASK_FOR(name, version) __asm__(".symver " #name "," #name "@" version)

ASK_FOR(dlopen, FIRST);
ASK_FOR(dlclose, FIRST);
ASK_FOR(dlerror, FIRST);
ASK_FOR(dlsym, FIRST);
ASK_FOR(dlinfo, FIRST_DLINFO);
ASK_FOR(pthread_create, FIRST);
ASK_FOR(pthread_sigmask, FIRST);
ASK_FOR(pthread_key_create, FIRST);
ASK_FOR(pthread_setspecific, FIRST);
ASK_FOR(pthread_getattr_np, FIRST);
ASK_FOR(pthread_attr_getstack, FIRST);
ASK_FOR(pthread_attr_getstacksize, FIRST);

// Start files of today call the new __libc_start_main, which runs constructors itself where
// the old one is given a function for that. The linker (--wrap) sends the call here.
typedef void constructor(int, char **, char **);
extern constructor *__init_array_start[] __attribute__((visibility("hidden")));
extern constructor *__init_array_end[] __attribute__((visibility("hidden")));

static void run_constructors(int argc, char **argv, char **env) {
  for (constructor **next = __init_array_start; next < __init_array_end; next++) (*next)(argc, argv, env);
}

__asm__(".symver first_start_main,__libc_start_main@" FIRST);
extern int first_start_main(int (*)(int, char **, char **), int, char **, constructor *, void (*)(void), void (*)(void), void *);

__attribute__((weak)) int __wrap___libc_start_main(int (*main)(int, char **, char **), int argc, char **argv, constructor *init,
                                                   void (*fini)(void), void (*loader_fini)(void), void *stack) {
  return first_start_main(main, argc, argv, init ? init : run_constructors, fini, loader_fini, stack);
}
#endif
