// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <utility>

namespace vocabpipe {

/// A file's text without the mark that editors on Windows put before it.
[[nodiscard]] std::string_view without_byte_order_mark(std::string_view text);

/// Cuts blocks of a file into lines, without their ends. Holds at most kMostBytes of one line: of a
/// longer one it hands on nothing but its number.
class LineSplitter {
public:
    /// 64 MiB: a line in JSON of a document that is longer than books are. Encoding such a line
    /// takes about ten times its bytes.
    static constexpr size_t kMostBytes = size_t{1} << 26;
    /// What a longer one is.
    static constexpr const char* kTooLong =
        "is longer than 64 MiB; cut its document into shorter ones";

    struct Line {
        int64_t number = 0;  ///< in the file, from 1
        std::string_view text;
        bool too_long = false;  ///< longer than kMostBytes; `text` is empty
    };
    using Take = std::function<void(const Line&)>;

    explicit LineSplitter(Take take) : take_(std::move(take)) {}

    void feed(std::string_view block);
    /// Ends the last line, which may lack its newline, and counts from 1 again.
    void end_file();

private:
    void append(std::string_view part);
    void take_line();

    Take take_;
    std::string line_;
    bool too_long_ = false;
    int64_t number_ = 0;
};

}  // namespace vocabpipe
