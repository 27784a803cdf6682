// SPDX-License-Identifier: Apache-2.0
// Text to token ids on one core.
//
//     bench_tokenizer --text FILE TOKENIZER [TOKENIZER ...] [--passes 5]
//
// Documents end at blank lines. One line per tokenizer: tokens of the text, MB/s of the first pass,
// when no word is known yet, the median of the others, and that of the one that also says where
// tokens begin. benchmarks/compare_tokenizer_speed.py sets the package tokenizers beside it.
#include "benchmarks/median.hpp"
#include "src/support/read_whole_file.hpp"
#include "src/train/tokenizer/open_tokenizer.hpp"
#include "vocabpipe/error.hpp"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <string>
#include <string_view>
#include <vector>

namespace {

using namespace vocabpipe;
using bench::median;

std::vector<std::string_view> documents_of(std::string_view text) {
    std::vector<std::string_view> documents;
    while (!text.empty()) {
        const size_t end = std::min(text.find("\n\n"), text.size());
        if (end > 0) documents.push_back(text.substr(0, end));
        text.remove_prefix(std::min(end + 2, text.size()));
    }
    return documents;
}

template <typename Pass>
double seconds_of(const Pass& pass) {
    const auto begin = std::chrono::steady_clock::now();
    pass();
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

void measure(const std::string& path, std::string_view text, int passes) {
    const auto tokenizer = open_tokenizer(path);
    const std::vector<std::string_view> documents = documents_of(text);
    std::vector<int32_t> ids;
    std::vector<size_t> begins;
    const auto plain = [&] {
        ids.clear();
        for (const std::string_view document : documents) tokenizer->encode(document, ids);
    };
    const auto with_begins = [&] {
        ids.clear();
        begins.clear();
        for (const std::string_view document : documents) {
            tokenizer->encode_with_begins(document, ids, begins);
        }
    };
    const double first = seconds_of(plain);
    const size_t tokens = ids.size();
    std::vector<double> plain_seconds, begins_seconds;
    for (int i = 0; i < passes; ++i) {
        plain_seconds.push_back(seconds_of(plain));
        begins_seconds.push_back(seconds_of(with_begins));
    }
    const double megabytes = static_cast<double>(text.size()) * 1e-6;
    std::printf("%10zu %10.1f %10.1f %10.1f  %s\n", tokens, megabytes / first,
                megabytes / median(plain_seconds), megabytes / median(begins_seconds),
                path.c_str());
    std::fflush(stdout);
}

}  // namespace

int main(int argc, char** argv) {
    std::string file;
    std::vector<std::string> tokenizers;
    int passes = 5;
    CLI::App app{"Text to token ids on one core"};
    app.add_option("--text", file, "Text, UTF-8")->required();
    app.add_option("--passes", passes, "Passes over the text after the first")
        ->check(CLI::Range(1, 1000));
    app.add_option("tokenizer", tokenizers, "Files or folders of tokenizers")->required();
    CLI11_PARSE(app, argc, argv);
    try {
        const std::string text = read_whole_file(file, "name a text file");
        std::printf("%10s %10s %10s %10s  tokenizer of %.1f MB\n", "tokens", "first MB/s", "MB/s",
                    "begins MB/s", static_cast<double>(text.size()) * 1e-6);
        for (const std::string& path : tokenizers) measure(path, text, passes);
    } catch (const Error& error) {
        std::fprintf(stderr, "bench_tokenizer: error: %s\n", error.what());
        return static_cast<int>(error.exit_code());
    }
    return 0;
}
