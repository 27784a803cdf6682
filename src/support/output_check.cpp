// SPDX-License-Identifier: Apache-2.0
#include "src/support/output_check.hpp"

#include "src/support/same_file.hpp"
#include "vocabpipe/error.hpp"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <initializer_list>
#include <system_error>

namespace vocabpipe {

namespace {

namespace fs = std::filesystem;

constexpr size_t kHeadBytes = 65536;

constexpr size_t kTailBytes = 256;

std::string read_some(std::ifstream& file, size_t bytes) {
    std::string text(bytes, '\0');
    file.read(text.data(), static_cast<std::streamsize>(text.size()));
    text.resize(static_cast<size_t>(file.gcount()));
    return text;
}

/// The first bytes of a file, and its last ones, once more where it is short.
std::string ends_of(const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    const std::string head = read_some(file, kHeadBytes);
    file.clear();
    file.seekg(0, std::ios::end);
    file.seekg(std::max<std::streamoff>(0, file.tellg() - std::streamoff{kTailBytes}));
    return head + read_some(file, kTailBytes);
}

/// Files that begin with one of `beginnings` and have all of `words` soon after, or at the end.
OutputKind kind(std::string_view name, std::vector<std::string_view> beginnings,
                std::vector<std::string_view> words = {}) {
    return {name, [=](const std::string& path) {
                const std::string text = ends_of(path);
                const auto begins = [&](std::string_view part) { return text.starts_with(part); };
                const auto has = [&](std::string_view part) {
                    return text.find(part) != std::string::npos;
                };
                return std::ranges::any_of(beginnings, begins) && std::ranges::all_of(words, has);
            }};
}

}  // namespace

OutputCheck::OutputCheck(std::vector<std::string> inputs) : inputs_(std::move(inputs)) {
    std::erase(inputs_, "");
}

void OutputCheck::add(std::string_view flag, const std::string& path, const OutputKind& kind) {
    const auto refuse = [&](const std::string& why) {
        throw UsageError(std::string(flag) + " " + path + ": " + why);
    };
    std::error_code none_there;
    if (fs::exists(path, none_there) && !fs::is_regular_file(path, none_there)) return;
    for (const std::string& input : inputs_) {
        if (same_file(path, input)) {
            refuse("is also an input of this command and would be replaced; choose another path");
        }
    }
    for (const auto& [other, written] : outputs_) {
        if (same_file(path, written)) {
            refuse("is also the output of " + other + "; use a different path for each");
        }
    }
    if (fs::is_regular_file(path, none_there) && fs::file_size(path, none_there) > 0 &&
        !kind.is_one(path)) {
        refuse("already exists and is not " + std::string(kind.name) +
               ", the only kind of file that is replaced; choose another path or remove it");
    }
    outputs_.emplace_back(flag, path);
}

OutputKind metrics_output() {
    return kind("a train_gpt metrics file", {"{\""}, {"\"step\":", "_seconds\":"});
}
OutputKind report_output() {
    return kind("a train_gpt report", {"{"},
                {"\"last_loss\":", "\"measured_step_seconds\":", "\"ranks\":"});
}
OutputKind profile_output() {
    return kind("a profile", {"{"}, {"\"vocabpipe_profile\":"});
}
OutputKind overlap_table_output() {
    return kind("a table of vocabpipe profile --overlap", {"{"}, {"\"vocabpipe_overlap_table\":"});
}
OutputKind product_choices_output() {
    return kind("a --time-products file", {"VocabPipe product choices "});
}
OutputKind trace_output() {
    return kind("a VocabPipe trace", {"{\"displayTimeUnit\":\"ns\",\"otherData\":{\"title\":"},
                {"\"traceEvents\":["});
}
OutputKind page_output() {
    return kind("a VocabPipe page",
                {"<!DOCTYPE html>\n<!-- SPDX-License-Identifier: Apache-2.0 -->\n",
                 "<!doctype html>\n<html lang=\"en\">\n<!-- SPDX-License-Identifier: Apache-2.0 "
                 "-->\n<head>\n<meta charset=\"utf-8\">\n<title>vocabpipe"});
}
OutputKind picture_output() {
    return kind("a picture from vocabpipe timeline",
                {"<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 "},
                {"font-family=\"sans-serif\" font-size=\"11\">\n<rect width=\"100%\""});
}
OutputKind table_output(const std::string& path) {
    if (path.ends_with(".parquet")) return kind("a Parquet file", {"PAR1"});
    if (path.ends_with(".npy")) return kind("a .npy file", {"\x93NUMPY"});
    return {"a text of numbers alone", [](const std::string& file) {
                return ends_of(file).find_first_not_of("0123456789.+-e \n") == std::string::npos;
            }};
}
OutputKind scores_output() {
    return kind("a file of scores from vocabpipe select", {""},
                {"\"format\":\"vocabpipe scores 1\""});
}
OutputKind graph_output() {
    return kind("a graph from vocabpipe select", {""}, {"\"format\":\"vocabpipe graph 1\""});
}
OutputKind subset_output() {
    return kind("a subset from vocabpipe select", {""}, {"\"format\":\"vocabpipe subset 1\""});
}
OutputKind selection_report_output() {
    return kind("a report of vocabpipe select", {"{"}, {"\"vocabpipe_selection\":"});
}
OutputKind llmc_output() {
    return kind("a token shard of llm.c", {std::string_view("\x88\xd8\x34\x01\x01\0\0\0", 8),
                                           std::string_view("\xa1\xd9\x34\x01\x07\0\0\0", 8)});
}
OutputKind document_ids_output() {
    return {"a list of document numbers", [](const std::string& path) {
                return ends_of(path).find_first_not_of("0123456789 \n") == std::string::npos;
            }};
}
OutputKind tokens_output(const std::string& prefix) {
    return {"a file from vocabpipe data prepare", [index = prefix + ".idx"](const std::string&) {
                return ends_of(index).starts_with(std::string_view("MMIDIDX\0\0", 9));
            }};
}

}  // namespace vocabpipe
