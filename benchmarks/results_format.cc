// Prints docs/results-format.md from the column table.
#include <cstdio>

#include "benchmarks/result_table.h"

int main() {
  std::printf(
      "# Columns of results.csv\n\n"
      "Made by `bazel run //benchmarks:results_format > docs/results-format.md`; edit the table "
      "in\n"
      "`benchmarks/result_table.cc` instead. Schema version %d. RFC 4180; empty means not "
      "measured, or\n"
      "not applicable. docs/memory.md defines the byte figures, docs/measuring.md the times.\n\n"
      "| column | meaning |\n|---|---|\n",
      ttbench::kSchemaVersion);
  for (const ttbench::Column& column : ttbench::ResultColumns()) {
    std::printf("| `%s` | %s |\n", column.name, column.meaning);
  }
}
