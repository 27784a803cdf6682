// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace vocabpipe {

/// The kind of file that a flag writes. An existing file is replaced only if it is of this kind.
struct OutputKind {
    std::string_view name;  ///< "a report of train_gpt"
    /// Whether a file that exists and is not empty is of this kind. Empty: files do not tell, and
    /// none is replaced.
    std::function<bool(const std::string& path)> is_one;
    bool in_order = true;  ///< written front to back, as a pipe requires
};

/// Checks the files that a command will write, before it begins to work:
///
///     OutputCheck check({"data.bin"});
///     check.add("--report", options.report, report_output());
class OutputCheck {
public:
    /// `inputs`: the files that the command reads. Names without a file are compared as text.
    explicit OutputCheck(std::vector<std::string> inputs);

    /// UsageError if `path` is one of the inputs or of the outputs so far (the same file, whatever
    /// the spelling), or an existing file of another kind. Others than regular files, such as
    /// devices, are written to and never replaced.
    void add(std::string_view flag, const std::string& path, const OutputKind& kind);

private:
    std::vector<std::string> inputs_;
    std::vector<std::pair<std::string, std::string>> outputs_;  ///< flags and paths
};

// The kinds of files that the programs write, recognised by their beginnings.

[[nodiscard]] OutputKind metrics_output();
[[nodiscard]] OutputKind report_output();
[[nodiscard]] OutputKind profile_output();
[[nodiscard]] OutputKind overlap_table_output();
[[nodiscard]] OutputKind product_choices_output();
[[nodiscard]] OutputKind trace_output();
/// A table of --pass-times.
[[nodiscard]] OutputKind pass_times_output();
[[nodiscard]] OutputKind page_output();
[[nodiscard]] OutputKind picture_output();
/// A file of write_length_distribution().
[[nodiscard]] OutputKind length_distribution_output();
/// Tables for other programs: .parquet, .npy, or text.
[[nodiscard]] OutputKind table_output();
[[nodiscard]] OutputKind scores_output();
[[nodiscard]] OutputKind graph_output();
[[nodiscard]] OutputKind subset_output();
[[nodiscard]] OutputKind selection_report_output();
/// A token shard of llm.c.
[[nodiscard]] OutputKind llmc_output();
/// A list of vocabpipe data filter --ids.
[[nodiscard]] OutputKind document_ids_output();
/// The files of a token file's `prefix`, recognised by its index.
[[nodiscard]] OutputKind tokens_output(const std::string& prefix);
/// PREFIX.weights.
[[nodiscard]] OutputKind loss_weights_output();

}  // namespace vocabpipe
