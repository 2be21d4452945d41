"""Names that an exported program cannot have: those of its own source, and of the C library."""

from __future__ import annotations

import re
from functools import cache
from importlib.resources import files

_TEMPLATES = (
    "program.c.in", "example.c.in", "language/sequence.c.in", "language/example.c.in", *(
        f"{kind}/{part}.c.in"
        for kind in ("straight", "regions")
        for part in ("memory", "runs", "example")
    ),
)  # fmt: skip
_COMMENT = re.compile(r"/\*.*?\*/", re.DOTALL)
_SLOT = re.compile(r"@(?:name|NAME)@_(\w+)")
_OWN = (  # of the file: objects and functions, types, macros
    re.compile(r"^static [^(\[=;{]*?(\w+) *[(\[=;{]", re.MULTILINE),
    re.compile(r"^(?:typedef )?struct (\w+) ", re.MULTILINE),
    re.compile(r"^typedef \w+ (\w+)\(", re.MULTILINE),
    re.compile(r"^} (\w+)", re.MULTILINE),
    re.compile(r"^ *#define (\w+)", re.MULTILINE),
)
_ENUM = re.compile(r"^enum {(.*?)}", re.MULTILINE | re.DOTALL)
_VALUE = re.compile(r"(\w+)\s*(?:=[^,]*)?(?:,|\s*$)")

_MATH = frozenset(  # also with 'f' and 'l' behind
    """
    acos acosh asin asinh atan atan2 atanh cbrt ceil copysign cos cosh erf erfc exp exp2 expm1
    fabs fdim floor fma fmax fmin fmod frexp hypot ilogb ldexp lgamma llrint llround log log10
    log1p log2 logb lrint lround modf nan nearbyint nextafter nexttoward pow remainder remquo
    rint round scalbln scalbn sin sinh sqrt tan tanh tgamma trunc
    """.split()  # noqa: SIM905
)
_LIBRARY = frozenset(  # of C11 and POSIX, in the headers that programs include
    """
    EOF FILE F_OK NULL R_OK W_OK X_OK abort abs access alarm aligned_alloc asctime asctime_r
    at_quick_exit atexit atof atoi atol atoll bcmp bcopy bsearch bzero calloc chdir chmod chown
    clearerr clock clock_getcpuclockid clock_getres clock_gettime clock_nanosleep clock_settime
    close confstr creat ctermid ctime ctime_r difftime div dprintf dup dup2 environ execl execle
    execlp execv execve execvp exit faccessat fchdir fchmod fchmodat fchown fchownat fclose
    fcntl fdatasync fdopen feof ferror fexecve fflush ffs fgetc fgetpos fgets fileno flock
    flockfile fmemopen fopen fork fpathconf fprintf fputc fputs fread free freopen fscanf fseek
    fseeko fsetpos fstat fstatat fsync ftell ftello ftruncate ftrylockfile funlockfile futimens
    fwrite getc getc_unlocked getchar getchar_unlocked getcwd getdelim getegid getenv geteuid
    getgid getgroups gethostname getline getlogin getlogin_r getopt getpgid getpgrp getpid
    getppid getsid getsubopt getuid gmtime gmtime_r imaxabs imaxdiv index isatty itimerspec j0
    j1 jn labs lchown ldiv link linkat llabs lldiv localtime localtime_r lseek lstat malloc
    math_errhandling mblen mbstowcs mbtowc memchr memcmp memcpy memmove memset mkdir mkdirat
    mkdtemp mkfifo mkfifoat mkstemp mktime mlock mlockall mmap mprotect mq_close mq_open msync
    munlock munlockall munmap nanosleep open open_memstream openat optarg opterr optind optopt
    pathconf pause pclose perror pipe popen posix_fadvise posix_fallocate posix_madvise
    posix_memalign pread printf putc putc_unlocked putchar putchar_unlocked puts pwrite qsort
    quick_exit rand rand_r read readlink readlinkat realloc remove rename renameat rewind rindex
    rmdir scanf sched_get_priority_max sched_get_priority_min sched_getparam sched_getscheduler
    sched_param sched_rr_get_interval sched_setparam sched_setscheduler sched_yield sem_close
    sem_open setbuf setegid setenv seteuid setgid setpgid setsid setuid setvbuf shm_open
    shm_unlink sigevent sleep snprintf sprintf srand sscanf st_atime st_ctime st_mtime stat
    stderr stdin stdout stpcpy stpncpy strcat strchr strcmp strcoll strcoll_l strcpy strcspn
    strdup strerror strerror_l strerror_r strftime strftime_l strlen strncat strncmp strncpy
    strndup strnlen strpbrk strrchr strsignal strspn strstr strtod strtof strtoimax strtok
    strtok_r strtol strtold strtoll strtoul strtoull strtoumax strxfrm strxfrm_l symlink
    symlinkat sysconf system tcgetpgrp tcsetpgrp time timer_create timer_delete timer_getoverrun
    timer_gettime timer_settime timespec timespec_get tm tmpfile tmpnam truncate ttyname
    ttyname_r tzset umask ungetc unlink unlinkat unsetenv utimensat va_list vdprintf vfprintf
    vfscanf vprintf vscanf vsnprintf vsprintf vsscanf wcstoimax wcstombs wcstoumax wctomb write
    y0 y1 yn
    """.split()  # noqa: SIM905
)
_PATTERN = re.compile(r"\w+_t|pthread_\w+")


def is_taken(name: str) -> bool:
    """Whether a program of that name would declare a name that its source has from elsewhere."""
    own, behind = _of_templates()
    upper = name.upper()
    declared = {
        name,
        *(f"{name}_{each}" for each in behind),
        *(f"{upper}_{each}" for each in behind),
    }
    return not declared.isdisjoint(own) or any(map(_in_library, declared))


def _in_library(name: str) -> bool:
    math = name in _MATH or (name[-1:] in ("f", "l") and name[:-1] in _MATH)
    return math or name in _LIBRARY or _PATTERN.fullmatch(name) is not None


@cache
def _of_templates() -> tuple[frozenset[str], frozenset[str]]:
    """Return the names of the templates, and what follows the program's name in others."""
    own: set[str] = set()
    behind: set[str] = set()
    for name in _TEMPLATES:
        text = files("anydim.deploy.export").joinpath("templates", name).read_text("utf-8")
        text = _COMMENT.sub("", text)
        behind.update(_SLOT.findall(text))
        text = _SLOT.sub("", text)
        own.update(found for pattern in _OWN for found in pattern.findall(text))
        own.update(n for values in _ENUM.findall(text) for n in _VALUE.findall(values))
    return frozenset(own), frozenset(behind)
