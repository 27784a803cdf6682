// SPDX-License-Identifier: Apache-2.0
#include "src/imported/range_pattern.hpp"

#include "vocabpipe/error.hpp"

#include <array>
#include <charconv>
#include <system_error>
#include <utility>

namespace vocabpipe::imported {

namespace {

/// The digits from `at` on as a number; all of them belong to it.
template <typename Number>
bool take_number(std::string_view name, size_t& at, std::optional<Number>& number) {
    Number value = 0;
    const char* const first = name.data() + at;
    const auto [end, error] = std::from_chars(first, name.data() + name.size(), value);
    if (error != std::errc()) return false;
    at += static_cast<size_t>(end - first);
    number = value;
    return true;
}

}  // namespace

RangePattern::RangePattern(std::string_view text) {
    constexpr std::array<std::pair<std::string_view, Kind>, 4> kNames{
        {{"{stage}", Kind::stage},
         {"{microbatch}", Kind::microbatch},
         {"{op}", Kind::op},
         {"*", Kind::any}}};
    for (size_t at = 0; at < text.size();) {
        bool named = false;
        for (const auto& [name, kind] : kNames) {
            if (!text.substr(at).starts_with(name)) continue;
            parts_.push_back({.kind = kind});
            at += name.size();
            named = true;
            break;
        }
        if (named) continue;
        if (text[at] == '{') {
            throw UsageError("pattern \"" + std::string(text) + "\": has " +
                             std::string(text.substr(at, text.find('}', at) - at + 1)) +
                             "; use {stage}, {microbatch}, {op} or *");
        }
        if (parts_.empty() || parts_.back().kind != Kind::text) parts_.push_back({});
        parts_.back().text += text[at++];
    }
    if (parts_.empty()) throw UsageError("a pattern is empty; use the name of a range");
}

bool RangePattern::take(const Part& part, std::string_view name, size_t& at, Found& found) {
    switch (part.kind) {
        case Kind::text:
            if (!name.substr(at).starts_with(part.text)) return false;
            at += part.text.size();
            return true;
        case Kind::stage:
            return take_number(name, at, found.stage);
        case Kind::microbatch:
            return take_number(name, at, found.microbatch);
        case Kind::op:
            for (size_t op = 0; op < kOpTraits.size(); ++op) {
                const OpTraits& row = kOpTraits[op];
                if (!row.has_stage || !name.substr(at).starts_with(row.name)) continue;
                found.op = static_cast<Op>(op);
                at += row.name.size();
                return true;
            }
            return false;
        case Kind::any:
            break;
    }
    return false;
}

std::optional<RangePattern::Found> RangePattern::match(std::string_view name) const {
    Found found;
    size_t part = 0, at = 0;
    size_t after_any = 0;  // part behind the last *, which may take more text; 0: there was none
    size_t taken = 0;      // end of the text that this * takes
    while (part < parts_.size() || at < name.size()) {
        if (part < parts_.size() && parts_[part].kind == Kind::any) {
            after_any = ++part;
            taken = at;
            if (part == parts_.size()) return found;
            continue;
        }
        if (part < parts_.size() && take(parts_[part], name, at, found)) {
            ++part;
            continue;
        }
        if (after_any == 0 || taken >= name.size()) return std::nullopt;
        part = after_any;
        at = ++taken;
    }
    return found;
}

}  // namespace vocabpipe::imported
