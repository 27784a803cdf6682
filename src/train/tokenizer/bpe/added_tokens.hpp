// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace vocabpipe {

/// A token that is found in a text before the text is cut into words.
struct AddedToken {
    std::string content;  ///< not empty
    int32_t id = 0;
    bool special = false;      ///< gives no text when decoded
    bool single_word = false;  ///< not within a word
    bool left_strip = false;   ///< takes the white space before it
    bool right_strip = false;  ///< takes the white space behind it
    bool normalized = false;   ///< is searched for in the normalized text
};

/// Finds some texts in a text. Of those that begin at the same place, the longest counts; search
/// goes on behind it.
class AddedTokens {
public:
    /// `texts` to search for, with the token each stands for.
    explicit AddedTokens(const std::vector<std::pair<std::string, AddedToken>>& texts = {});

    struct Found {
        size_t begin, end;  ///< with the white space that it takes
        int32_t id;
    };
    /// The next one at or after `from`. `done`: the end of the one before, 0 at first; white space
    /// before it is taken.
    /// Sets `from` to where the search goes on. False: there is none.
    [[nodiscard]] bool next(std::string_view text, size_t& from, size_t done, Found& found) const;

private:
    struct Node {
        std::vector<std::pair<char, uint32_t>> children;  ///< sorted by byte
        int32_t token = -1;                               ///< that ends here
    };
    [[nodiscard]] const Node* child(const Node& node, char byte) const;

    std::vector<AddedToken> tokens_;
    std::vector<Node> nodes_;
    std::array<bool, 256> begins_{};  ///< the first bytes of tokens
};

}  // namespace vocabpipe
