/* Runs a saved program on Windows as the runtime maps it: `host.exe MEMORY RESULTS`.

   MEMORY has 8 words, then bytes: their address and number, address and bytes of the code among
   them, addresses of the block, of bind and run, and where what these return goes. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <windows.h>

typedef int64_t (*function)(int64_t block);

static void check(int good, const char *what) {
    if (good) return;
    fprintf(stderr, "%s: error %lu\n", what, GetLastError());
    exit(1);
}

int main(int count, char **names) {
    uint64_t words[8];
    DWORD before;
    check(count == 3, "arguments");
    FILE *file = fopen(names[1], "rb");
    check(file && fread(words, sizeof words, 1, file) == 1, "the words");
    char *memory = VirtualAlloc(
        (void *)(uintptr_t)words[0], words[1], MEM_COMMIT | MEM_RESERVE, PAGE_READWRITE);
    check(memory != NULL, "VirtualAlloc");
    check(fread(memory, 1, words[1], file) == words[1], "the memory");
    fclose(file);
    void *code = (void *)(uintptr_t)words[2];
    check(VirtualProtect(code, words[3], PAGE_EXECUTE_READ, &before), "VirtualProtect");
    FlushInstructionCache(GetCurrentProcess(), code, words[3]);
    int64_t *returned = (int64_t *)(uintptr_t)words[7];
    returned[0] = ((function)(uintptr_t)words[5])((int64_t)words[4]);
    if (returned[0] == 0) returned[1] = ((function)(uintptr_t)words[6])((int64_t)words[4]);
    file = fopen(names[2], "wb");
    check(file && fwrite(memory, 1, words[1], file) == words[1], "the results");
    return fclose(file);
}
