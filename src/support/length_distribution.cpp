// SPDX-License-Identifier: Apache-2.0
#include "src/support/length_distribution.hpp"

#include <algorithm>
#include <optional>
#include <string_view>

#include "src/support/next_line.hpp"
#include "src/support/output_file.hpp"
#include "src/support/parse_number.hpp"
#include "src/support/read_whole_file.hpp"
#include "vocabpipe/error.hpp"

namespace vocabpipe {

namespace {

constexpr std::string_view kHeader = "length,count";
constexpr int64_t kMostCount = int64_t{1} << 40;  // sums over all lines stay within 64 bits
constexpr int kMostLines = 1'000'000;

class Reader {
public:
    explicit Reader(const std::string& path) : path_(path) {}

    std::vector<LengthCount> read() {
        const std::string text =
            read_whole_file(path_, "check the name; vocabpipe data inspect writes such files");
        for (size_t at = 0; at < text.size();) {
            const std::string_view line = next_line(text, at);
            if (++number_ > kMostLines) {
                fail("has more than " + std::to_string(kMostLines) +
                     " lines; round the lengths up to fewer");
            }
            if (!line.empty() && line.front() != '#') take(line);
        }
        if (!header_) fail("is empty; " + begins());
        if (!any_) fail("has no length with a count above 0; add one");
        return std::move(lengths_);
    }

private:
    [[noreturn]] void fail(const std::string& what) const {
        throw InputFileError(path_ + ":" + std::to_string(number_) + ": " + what);
    }
    static std::string begins() { return "begin with the line " + std::string(kHeader); }

    int64_t integer(std::string_view name, std::string_view text, int64_t least,
                    int64_t most) const {
        const std::optional<int64_t> value = parse_number<int64_t>(text);
        if (value && *value >= least && *value <= most) return *value;
        fail(std::string(name) + " \"" + std::string(text) + "\": must be an integer from " +
             std::to_string(least) + " to " + std::to_string(most));
    }

    void take(std::string_view line) {
        if (!header_) {
            if (line != kHeader) fail('"' + std::string(line) + "\" is no header; " + begins());
            header_ = true;
            return;
        }
        const size_t comma = line.find(',');
        if (comma == std::string_view::npos) {
            fail('"' + std::string(line) + "\" has no comma; write " + std::string(kHeader));
        }
        const int64_t length = integer("length", line.substr(0, comma), 1, kMostLength);
        const int64_t count = integer("count", line.substr(comma + 1), 0, kMostCount);
        if (!lengths_.empty() && length <= lengths_.back().length) {
            fail("length " + std::to_string(length) + " follows " +
                 std::to_string(lengths_.back().length) + "; sort the lines by length, each once");
        }
        lengths_.push_back({.length = length, .count = count});
        any_ = any_ || count > 0;
    }

    const std::string& path_;
    std::vector<LengthCount> lengths_;
    int number_ = 0;
    bool header_ = false;
    bool any_ = false;
};

}  // namespace

std::vector<LengthCount> read_length_distribution(const std::string& path) {
    return Reader(path).read();
}

void write_length_distribution(const std::string& path, std::span<const LengthCount> lengths) {
    OutputFile file(path);
    // length_distribution_output() recognises the file by its first line.
    file.write("# vocabpipe document lengths: rows, which are tokens but the last\n");
    file.write(std::string(kHeader) + "\n");
    for (const LengthCount& of_length : lengths) {
        file.write(std::to_string(of_length.length) + "," + std::to_string(of_length.count) + "\n");
    }
    file.publish();
}

}  // namespace vocabpipe
