#include "bench.h"

#include "commit.h"

const char *um_bench_machine(void) {
    static char text[400];
    char line[256], name[200] = "unknown processor";
    int family = 0, model = 0;
    FILE *f = fopen("/proc/cpuinfo", "re");
    while (f && fgets(line, sizeof line, f) && line[0] != '\n') {
        sscanf(line, "model name : %199[^\n]", name);
        sscanf(line, "cpu family : %d", &family);
        sscanf(line, "model : %d", &model);
    }
    if (f) fclose(f);
    snprintf(text, sizeof text, "%s (family %d model %d), %d cores, commit %s", name, family, model, um_cpu_count(),
             UM_COMMIT);
    return text;
}
