// fxc.exe DLL KERNEL.hlsl: compiles entry `main` for cs_5_1 as wgpu does, with the D3DCompile of that DLL. Prints its seconds, or its words and fails.
#include <stdio.h>
#include <stdlib.h>
#include <windows.h>

typedef struct Blob { struct { void *query, *add, *release; void *(WINAPI *data)(struct Blob *); SIZE_T(WINAPI *size)(struct Blob *); } *is; } Blob;
typedef HRESULT(WINAPI *Compile)(const void *, SIZE_T, const char *, const void *, void *, const char *, const char *, UINT, UINT, Blob **, Blob **);

int main(int count, char **names) {
    HMODULE library = count == 3 ? LoadLibraryA(names[1]) : NULL;
    Compile compile = library ? (Compile)(void *)GetProcAddress(library, "D3DCompile") : NULL;
    FILE *file = compile ? fopen(names[2], "rb") : NULL;
    static char text[1 << 22];
    if (!file) { fprintf(stderr, "fxc: wanted a DLL with D3DCompile and a file\n"); return 2; }
    size_t bytes = fread(text, 1, sizeof text, file);
    Blob *code = NULL, *words = NULL;
    DWORD start = GetTickCount();
    HRESULT result = compile(text, bytes, names[2], NULL, NULL, "main", "cs_5_1", 1 << 11, 0, &code, &words);
    if (result < 0) {
        fprintf(stderr, "%08lx %.*s\n", (unsigned long)result, words ? (int)words->is->size(words) : 0, words ? (char *)words->is->data(words) : "");
        return 1;
    }
    printf("%.1f\n", (GetTickCount() - start) / 1000.0);
    return 0;
}
