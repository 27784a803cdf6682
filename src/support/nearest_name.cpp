// SPDX-License-Identifier: Apache-2.0
#include "src/support/nearest_name.hpp"

#include "src/support/joined.hpp"

#include <algorithm>
#include <string>
#include <vector>

namespace vocabpipe {

namespace {

constexpr size_t kLongest = 64;  // longer names are not typing errors

char lower(char c) {
    return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c == '_' ? '-' : c;
}

/// Number of letters to add, drop, change or swap with a neighbour to turn a into b.
size_t distance(std::string_view a, std::string_view b) {
    const size_t width = b.size() + 1;
    std::vector<size_t> table((a.size() + 1) * width);
    for (size_t i = 0; i <= a.size(); ++i) {
        for (size_t j = 0; j <= b.size(); ++j) {
            size_t& cell = table[i * width + j];
            cell = std::max(i, j);
            if (i == 0 || j == 0) continue;
            const bool same = lower(a[i - 1]) == lower(b[j - 1]);
            cell = std::min({table[(i - 1) * width + j] + 1, table[i * width + j - 1] + 1,
                             table[(i - 1) * width + j - 1] + (same ? 0U : 1U)});
            if (i > 1 && j > 1 && lower(a[i - 1]) == lower(b[j - 2]) &&
                lower(a[i - 2]) == lower(b[j - 1])) {
                cell = std::min(cell, table[(i - 2) * width + j - 2] + 1);
            }
        }
    }
    return table.back();
}

/// "zbv" and "zb-v" have the same letters.
bool same_letters(std::string_view a, std::string_view b) {
    const auto letters = [](std::string_view text) {
        std::string found;
        for (const char c : text) {
            if (lower(c) != '-') found += lower(c);
        }
        return found;
    };
    return letters(a) == letters(b);
}

}  // namespace

std::string did_you_mean(std::string_view given, std::span<const std::string_view> known) {
    if (given.empty() || given.size() > kLongest) return "";
    std::string_view best;
    size_t least = 0;
    for (const std::string_view name : known) {
        if (name.size() > kLongest) continue;
        const size_t changes = same_letters(given, name) ? 0
                               : name.starts_with(given) ? 1
                                                         : distance(given, name);
        if (changes * 3 > std::max(given.size(), name.size()) && !name.starts_with(given)) continue;
        if (best.empty() || changes < least) {
            best = name;
            least = changes;
        }
    }
    return best.empty() ? "" : "; did you mean " + std::string(best) + "?";
}

std::string must_be_one_of(std::span<const std::string_view> known, std::string_view given) {
    return "must be one of " + joined(known) + did_you_mean(given, known);
}

}  // namespace vocabpipe
