// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace vocabpipe {

/// What a flag writes. A file of that name is replaced only if it is such a one already.
struct OutputKind {
    std::string_view name;  ///< "a report of train_gpt"
    /// Whether the file, which is there and not empty, is one. Empty: nothing in a file says so,
    /// and none is replaced.
    std::function<bool(const std::string& path)> is_one;
    bool in_order = true;  ///< written from its begin to its end, as a pipe must be
};

/// Looks at the files that a command is about to write, before it begins to work:
///
///     OutputCheck check({"data.bin"});
///     check.add("--report", options.report, report_output());
class OutputCheck {
public:
    /// `inputs`: the files that the command reads. Those that are no files count as spelt.
    explicit OutputCheck(std::vector<std::string> inputs);

    /// Throws UsageError if `path` is one of the inputs or of the outputs so far (the same file,
    /// whatever the spelling), or a file that is there and not of this kind. What is no regular
    /// file, such as a device, is written to and never replaced.
    void add(std::string_view flag, const std::string& path, const OutputKind& kind);

private:
    std::vector<std::string> inputs_;
    std::vector<std::pair<std::string, std::string>> outputs_;  ///< flag and path
};

// What the programs write; known by how they begin.

[[nodiscard]] OutputKind metrics_output();
[[nodiscard]] OutputKind report_output();
[[nodiscard]] OutputKind profile_output();
[[nodiscard]] OutputKind overlap_table_output();
[[nodiscard]] OutputKind product_choices_output();
[[nodiscard]] OutputKind trace_output();
[[nodiscard]] OutputKind page_output();
[[nodiscard]] OutputKind picture_output();
/// Tables for others: .parquet, .npy, or text.
[[nodiscard]] OutputKind table_output();
[[nodiscard]] OutputKind scores_output();
[[nodiscard]] OutputKind graph_output();
[[nodiscard]] OutputKind subset_output();
[[nodiscard]] OutputKind selection_report_output();
/// A token shard of llm.c.
[[nodiscard]] OutputKind llmc_output();
/// A list of vocabpipe data filter --ids.
[[nodiscard]] OutputKind document_ids_output();
/// The files of a token file's `prefix`, which its index makes known.
[[nodiscard]] OutputKind tokens_output(const std::string& prefix);

}  // namespace vocabpipe
