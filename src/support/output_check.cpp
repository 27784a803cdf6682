// SPDX-License-Identifier: Apache-2.0
#include "src/support/output_check.hpp"

#include "src/support/output_file.hpp"
#include "src/support/same_file.hpp"
#include "vocabpipe/error.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <initializer_list>
#include <system_error>

namespace vocabpipe {

namespace {

namespace fs = std::filesystem;

constexpr size_t kHeadBytes = 65536;

constexpr size_t kTailBytes = 256;

/// The first and the last bytes of a file, overlapping if it is short; "" if it does not exist.
std::string ends_of(const std::string& path) {
    const auto fail = [&] {
        throw_output_error(path, "exists, but what it holds cannot be read", errno);
    };
    const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
    if (file < 0 && errno == ENOENT) return "";
    if (file < 0) fail();
    const auto read_at = [&](off_t at, size_t bytes) {
        std::string text(bytes, '\0');
        size_t done = 0;
        while (done < bytes) {
            const ssize_t got =
                ::pread(file, text.data() + done, bytes - done, at + static_cast<off_t>(done));
            if (got < 0 && errno == EINTR) continue;
            if (got < 0) {
                const int error = errno;
                ::close(file);
                errno = error;
                fail();
            }
            if (got == 0) break;
            done += static_cast<size_t>(got);
        }
        text.resize(done);
        return text;
    };
    const std::string head = read_at(0, kHeadBytes);
    const off_t size = ::lseek(file, 0, SEEK_END);
    const std::string tail =
        read_at(std::max<off_t>(0, size - static_cast<off_t>(kTailBytes)), kTailBytes);
    ::close(file);
    return head + tail;
}

/// Files that begin with one of `beginnings` and have all of `words` in their first or last bytes.
OutputKind kind(std::string_view name, std::vector<std::string_view> beginnings,
                std::vector<std::string_view> words = {}) {
    return {.name = name, .is_one = [=](const std::string& path) {
                const std::string text = ends_of(path);
                const auto begins = [&](std::string_view part) { return text.starts_with(part); };
                const auto has = [&](std::string_view part) {
                    return text.find(part) != std::string::npos;
                };
                return std::ranges::any_of(beginnings, begins) && std::ranges::all_of(words, has);
            }};
}

/// A safetensors file whose metadata has a version of this format.
OutputKind tensors(std::string_view name, std::string_view format) {
    return {.name = name,
            .is_one =
                [format](const std::string& path) {
                    const std::string text = ends_of(path);
                    uint64_t header = 0;
                    if (text.size() <= sizeof header) return false;
                    std::memcpy(&header, text.data(), sizeof header);
                    std::error_code none_there;
                    return header <= fs::file_size(path, none_there) - sizeof header &&
                           text[sizeof header] == '{' &&
                           text.find("\"format\":\"" + std::string(format) + ' ') !=
                               std::string::npos;
                },
            .in_order = false};
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
    if (fs::exists(path, none_there) && !fs::is_regular_file(path, none_there)) {
        const fs::file_type type = fs::status(path, none_there).type();
        if (!kind.in_order && (type == fs::file_type::fifo || type == fs::file_type::socket)) {
            refuse("is a pipe, and ranks write the parts of " + std::string(kind.name) +
                   " in any order; write a file, then send it");
        }
        return;
    }
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
    const bool replaces =
        fs::is_regular_file(path, none_there) && fs::file_size(path, none_there) > 0;
    if (replaces && !kind.is_one) {
        refuse(
            "already exists, and nothing in it says who wrote it; choose another path or remove "
            "it");
    }
    if (replaces && !kind.is_one(path)) {
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
OutputKind pass_times_output() {
    return kind("a table of pass times", {"rank,op,stage,ns\n"});
}
OutputKind page_output() {
    return kind("a VocabPipe page",
                {"<!DOCTYPE html>\n<!-- SPDX-License-Identifier: Apache-2.0 -->\n",
                 "<!doctype html>\n<html lang=\"en\">\n<!-- SPDX-License-Identifier: Apache-2.0 "
                 "-->\n<head>\n<meta charset=\"utf-8\">\n<title>vocabpipe",
                 "<!doctype html>\n<html lang=\"en\">\n<!-- SPDX-License-Identifier: Apache-2.0 "
                 "-->\n<head>\n<meta charset=\"utf-8\">\n<meta name=\"viewport\" "
                 "content=\"width=device-width, initial-scale=1\">\n<title>vocabpipe"});
}
OutputKind picture_output() {
    return kind("a picture from vocabpipe timeline",
                {"<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 "},
                {"font-family=\"sans-serif\" font-size=\"11\">\n<",
                 "<rect width=\"100%\" height=\"100%\""});
}
OutputKind length_distribution_output() {
    return kind("a distribution of lengths from vocabpipe data inspect",
                {"# vocabpipe document lengths: "});
}
OutputKind table_output() {
    return {.name = "a table", .is_one = {}};
}
OutputKind scores_output() {
    return tensors("a file of scores from vocabpipe select", "vocabpipe scores");
}
OutputKind graph_output() {
    return tensors("a graph from vocabpipe select", "vocabpipe graph");
}
OutputKind subset_output() {
    return tensors("a subset from vocabpipe select", "vocabpipe subset");
}
OutputKind selection_report_output() {
    return kind("a report of vocabpipe select", {"{"}, {"\"vocabpipe_selection\":"});
}
OutputKind llmc_output() {
    return kind("a token shard of llm.c", {std::string_view("\x88\xd8\x34\x01\x01\0\0\0", 8),
                                           std::string_view("\xa1\xd9\x34\x01\x07\0\0\0", 8)});
}
OutputKind document_ids_output() {
    return {.name = "a list of document numbers", .is_one = {}};
}
OutputKind tokens_output(const std::string& prefix) {
    return {"a file from vocabpipe data prepare", [index = prefix + ".idx"](const std::string&) {
                return ends_of(index).starts_with(std::string_view("MMIDIDX\0\0", 9));
            }};
}

OutputKind loss_weights_output() {
    return {"a file of loss weights",
            [](const std::string& path) { return ends_of(path).starts_with("VPWEIGHT"); }};
}

}  // namespace vocabpipe
