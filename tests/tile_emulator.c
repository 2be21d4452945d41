/* Executes the tile instructions of AMX on processors without them, by a handler of SIGILL.

   Semantics: Intel's Software Developer's Manual, volume 2. A thread has its own tiles. An
   instruction that the manual makes an exception of, and any other illegal instruction, go to the
   handler that was there before. Only what this compiler generates is decoded: no segments, no
   addresses of 32 bits. */
#define _GNU_SOURCE
#include <immintrin.h>
#include <math.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <ucontext.h>

enum { COUNT = 8, ROWS = 16, BYTES = 64 };
enum { CONFIGURE, STORE_CONFIGURATION, RELEASE, ZERO, LOAD, STORE, BFLOAT16, INT8, KINDS };

struct configuration {
    uint8_t palette, start_row, reserved[14];
    uint16_t row_bytes[COUNT], more_bytes[8];
    uint8_t rows[COUNT], more_rows[8];
};

struct tiles {
    struct configuration shape;
    uint8_t data[COUNT][ROWS][BYTES];
};

struct instruction {
    int prefix, opcode, reg, rm, vector; /* prefix: 0 none, 1 66, 2 F3, 3 F2 */
    int is_register, has_sib;
    const uint8_t *end;
    uintptr_t base;
    int64_t stride;
};

static __thread struct tiles *own __attribute__((tls_model("initial-exec")));
static atomic_long in_use, counts[KINDS];
static struct sigaction before;

static const int REGISTERS[16] = {
    REG_RAX, REG_RCX, REG_RDX, REG_RBX, REG_RSP, REG_RBP, REG_RSI, REG_RDI,
    REG_R8, REG_R9, REG_R10, REG_R11, REG_R12, REG_R13, REG_R14, REG_R15,
};

/* Decodes a VEX instruction of map 0F38 with vectors of 128 bits and W0; 0 for another one. */
static int decode(const uint8_t *code, const greg_t *registers, struct instruction *made)
{
    if (code[0] != 0xC4 || (code[1] & 0x1F) != 2 || (code[2] & 0x84))
        return 0;
    int high_reg = !(code[1] & 0x80), high_index = !(code[1] & 0x40), high_base = !(code[1] & 0x20);
    int modrm = code[4], mode = modrm >> 6;
    made->vector = ~code[2] >> 3 & 15;
    made->prefix = code[2] & 3;
    made->opcode = code[3];
    made->reg = (modrm >> 3 & 7) | high_reg << 3;
    made->rm = (modrm & 7) | high_base << 3;
    made->is_register = mode == 3;
    made->has_sib = !made->is_register && (modrm & 7) == 4;
    made->base = 0;
    made->stride = 0;
    const uint8_t *at = code + 5;
    if (!made->is_register) {
        int base = made->rm, no_base = mode == 0 && (modrm & 7) == 5;
        if (made->has_sib) {
            int sib = *at++, index = (sib >> 3 & 7) | high_index << 3;
            base = (sib & 7) | high_base << 3;
            no_base = mode == 0 && (sib & 7) == 5;
            if (index != 4)
                made->stride = registers[REGISTERS[index]] << (sib >> 6);
        }
        int32_t offset = 0;
        if (mode == 2 || no_base) {
            memcpy(&offset, at, 4);
            at += 4;
        } else if (mode == 1)
            offset = (int8_t)*at++;
        made->base = no_base ? 0 : registers[REGISTERS[base]];
        if (no_base && !made->has_sib)
            made->base = (uintptr_t)at; /* relative to the next instruction */
        made->base += offset;
    }
    made->end = at;
    return 1;
}

static void release(void)
{
    if (own && own->shape.palette) {
        atomic_fetch_sub(&in_use, 1);
        memset(own, 0, sizeof *own);
    }
}

static int is_valid(const struct configuration *shape)
{
    static const uint8_t zeros[16];
    if (shape->palette > 1 || memcmp(shape->reserved, zeros, 14))
        return 0;
    if (memcmp(shape->more_bytes, zeros, 16) || memcmp(shape->more_rows, zeros, 8))
        return 0;
    for (int i = 0; i < COUNT; i++) {
        int rows = shape->rows[i], bytes = shape->row_bytes[i];
        if (rows > ROWS || bytes > BYTES || !rows != !bytes)
            return 0;
    }
    return 1;
}

static int configure(const void *memory)
{
    struct configuration shape;
    memcpy(&shape, memory, sizeof shape);
    if (!is_valid(&shape))
        return 0;
    release();
    if (!shape.palette)
        return 1;
    if (!own) {
        void *made = mmap(0, sizeof *own, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (made == MAP_FAILED)
            return 0;
        own = made;
    }
    own->shape = shape;
    atomic_fetch_add(&in_use, 1);
    return 1;
}

static int is_ready(int tile)
{
    return own && own->shape.palette && tile < COUNT && own->shape.rows[tile];
}

static void move(const struct instruction *it, int store)
{
    int bytes = own->shape.row_bytes[it->reg];
    uint8_t(*tile)[BYTES] = own->data[it->reg];
    if (!store)
        memset(tile, 0, sizeof own->data[0]);
    for (int row = 0; row < own->shape.rows[it->reg]; row++) {
        void *memory = (void *)(it->base + row * it->stride);
        if (store)
            memcpy(memory, tile[row], bytes);
        else
            memcpy(tile[row], memory, bytes);
    }
}

/* Whether the tiles of a product are distinct and their shapes fit. */
static int fits(int sums, int left, int right)
{
    if (!is_ready(sums) || !is_ready(left) || !is_ready(right))
        return 0;
    if (sums == left || sums == right || left == right)
        return 0;
    const struct configuration *shape = &own->shape;
    const uint16_t *bytes = shape->row_bytes;
    if (bytes[sums] % 4 || bytes[left] % 4 || bytes[right] % 4)
        return 0;
    return bytes[sums] == bytes[right] && shape->rows[sums] == shape->rows[left] &&
           bytes[left] / 4 == shape->rows[right];
}

static inline float widen(uint16_t half)
{
    uint32_t bits = (uint32_t)half << 16;
    float value;
    memcpy(&value, &bits, 4);
    return value;
}

/* Even and odd numbers along k are summed apart, then together, then to the old sums. */
__attribute__((noinline)) static void multiply_bfloat16(int sums, int left, int right)
{
    float b[ROWS][2][ROWS];
    int words = own->shape.rows[right];
    for (int k = 0; k < words; k++)
        for (int n = 0; n < ROWS; n++) {
            uint16_t pair[2];
            memcpy(pair, own->data[right][k] + 4 * n, 4);
            b[k][0][n] = widen(pair[0]);
            b[k][1][n] = widen(pair[1]);
        }
    for (int m = 0; m < own->shape.rows[sums]; m++) {
        float even[ROWS] = {0}, odd[ROWS] = {0}, total[ROWS];
        for (int k = 0; k < words; k++) {
            uint16_t pair[2];
            memcpy(pair, own->data[left][m] + 4 * k, 4);
            float first = widen(pair[0]), second = widen(pair[1]);
            for (int n = 0; n < ROWS; n++) {
                even[n] = __builtin_fmaf(first, b[k][0][n], even[n]);
                odd[n] = __builtin_fmaf(second, b[k][1][n], odd[n]);
            }
        }
        memcpy(total, own->data[sums][m], BYTES);
        for (int n = 0; n < ROWS; n++)
            total[n] = total[n] + (even[n] + odd[n]);
        memcpy(own->data[sums][m], total, own->shape.row_bytes[sums]);
    }
}

static void multiply_int8(int sums, int left, int right, int left_signed, int right_signed)
{
    for (int m = 0; m < own->shape.rows[sums]; m++)
        for (int n = 0; n < own->shape.row_bytes[sums] / 4; n++) {
            uint32_t total;
            memcpy(&total, own->data[sums][m] + 4 * n, 4);
            for (int k = 0; k < own->shape.rows[right]; k++)
                for (int i = 0; i < 4; i++) {
                    uint8_t x = own->data[left][m][4 * k + i], y = own->data[right][k][4 * n + i];
                    int a = left_signed ? (int8_t)x : x, b = right_signed ? (int8_t)y : y;
                    total += (uint32_t)(a * b);
                }
            memcpy(own->data[sums][m] + 4 * n, &total, 4);
        }
}

/* Executes an instruction: its kind, -1 if it is illegal or an exception. */
static int execute(const struct instruction *it)
{
    int none = it->vector == 0, sib = it->has_sib && none;
    if (it->opcode == 0x49 && none) {
        if (it->is_register && it->prefix == 3 && it->rm == 0 && is_ready(it->reg)) {
            memset(own->data[it->reg], 0, sizeof own->data[0]);
            return ZERO;
        }
        if (it->is_register && it->prefix == 0 && it->rm == 0 && it->reg == 0) {
            release();
            return RELEASE;
        }
        if (!it->is_register && it->prefix == 0 && it->reg == 0)
            return configure((void *)it->base) ? CONFIGURE : -1;
        if (!it->is_register && it->prefix == 1 && it->reg == 0) {
            static const struct configuration nothing;
            memcpy((void *)it->base, own ? &own->shape : &nothing, sizeof nothing);
            return STORE_CONFIGURATION;
        }
        return -1;
    }
    if (it->opcode == 0x4B && it->prefix && sib && is_ready(it->reg)) {
        move(it, it->prefix == 2);
        return it->prefix == 2 ? STORE : LOAD;
    }
    int is_bfloat16 = it->opcode == 0x5C && it->prefix == 2;
    if (!it->is_register || !(is_bfloat16 || it->opcode == 0x5E))
        return -1;
    if (!fits(it->reg, it->rm, it->vector))
        return -1;
    if (!is_bfloat16) { /* unsigned by unsigned, unsigned by signed, signed by unsigned, signed */
        multiply_int8(it->reg, it->rm, it->vector, it->prefix >= 2, it->prefix & 1);
        return INT8;
    }
    unsigned control = _mm_getcsr();
    _mm_setcsr(0x1F80 | 0x8040); /* subnormal numbers are zeros, before and after; to nearest */
    multiply_bfloat16(it->reg, it->rm, it->vector);
    _mm_setcsr(control);
    return BFLOAT16;
}

static void handle(int number, siginfo_t *info, void *context)
{
    (void)number, (void)info;
    greg_t *registers = ((ucontext_t *)context)->uc_mcontext.gregs;
    struct instruction it;
    int kind = -1;
    if (decode((const uint8_t *)registers[REG_RIP], registers, &it))
        kind = execute(&it);
    if (kind < 0) {
        sigaction(SIGILL, &before, 0); /* the instruction runs again, and meets that handler */
        return;
    }
    atomic_fetch_add(&counts[kind], 1);
    registers[REG_RIP] = (greg_t)it.end;
}

int tiles_install(void)
{
    struct sigaction action = {.sa_sigaction = handle, .sa_flags = SA_SIGINFO | SA_ONSTACK};
    return sigaction(SIGILL, &action, &before);
}

int tiles_uninstall(void) { return sigaction(SIGILL, &before, 0); }

/* Threads with configured tiles. */
long tiles_in_use(void) { return in_use; }

/* Instructions of a kind since the last call, in the order of the enumeration. */
long tiles_counted(int kind) { return atomic_exchange(&counts[kind], 0); }

#ifdef PRELOAD /* into a process, which is granted its request of Linux for tiles */
#include <dlfcn.h>

long syscall(long number, ...)
{
    long (*given)(long, ...) = (long (*)(long, ...))dlsym(RTLD_NEXT, "syscall"), arguments[6];
    va_list list;
    va_start(list, number);
    for (int i = 0; i < 6; i++)
        arguments[i] = va_arg(list, long);
    va_end(list);
    if (number == 158 && arguments[0] == 0x1023) /* arch_prctl, ARCH_REQ_XCOMP_PERM */
        return 0;
    return given(number, arguments[0], arguments[1], arguments[2], arguments[3], arguments[4],
                 arguments[5]);
}

__attribute__((constructor)) static void begin(void) { tiles_install(); }
#endif
