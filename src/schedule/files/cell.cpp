// SPDX-License-Identifier: Apache-2.0
#include "src/schedule/files/cell.hpp"

#include "src/schedule/files/user_schedule.hpp"
#include "src/support/trimmed_text.hpp"

#include <algorithm>
#include <array>

namespace vocabpipe::files {

namespace {

constexpr std::array<std::string_view, 10> kTransfers{
    "SEND_F",      "RECV_F",  "SEND_B",  "RECV_B",      "WAIT_SEND_F",
    "WAIT_SEND_B", "UNSHARD", "RESHARD", "REDUCE_GRAD", "WAIT_REDUCE_GRAD"};
constexpr std::string_view kPairEnd = ")OVERLAP_F_B";

constexpr bool is_digit(char c) {
    return c >= '0' && c <= '9';
}

std::optional<uint32_t> take_number(std::string_view& text) {
    constexpr size_t kMostDigits = 9;  // fits 32 bits; tighter limits are checked later
    size_t digits = 0;
    uint32_t value = 0;
    for (; digits < text.size() && is_digit(text[digits]); ++digits) {
        if (digits == kMostDigits) throw CellError("a number has more than 9 digits");
        value = 10 * value + static_cast<uint32_t>(text[digits] - '0');
    }
    text.remove_prefix(digits);
    return digits > 0 ? std::optional(value) : std::nullopt;
}

std::string_view take_word(std::string_view& text) {
    size_t end = 0;
    while (end < text.size() && ((text[end] >= 'A' && text[end] <= 'Z') || text[end] == '_')) ++end;
    const std::string_view word = text.substr(0, end);
    text.remove_prefix(end);
    return word;
}

RawAction take_action(std::string_view& text) {
    RawAction action;
    action.stage = take_number(text);
    action.word = take_word(text);
    if (action.word.empty()) {
        throw CellError("is not <stage><pass><microbatch>, such as 2F0");
    }
    action.microbatch = take_number(text);
    return action;
}

RawAction whole_action(std::string_view text) {
    const RawAction action = take_action(text);
    if (!text.empty()) throw CellError("has extra text " + shown(text) + " after a complete pass");
    return action;
}

std::string with_numbers(const RawAction& action, std::string_view word) {
    return (action.stage ? std::to_string(*action.stage) : "0") + std::string(word) +
           (action.microbatch ? std::to_string(*action.microbatch) : "0");
}

/// The kind of pass of a word, or none for other words. Throws for words of another dialect.
std::optional<Op> op_of(const RawAction& action, CsvDialect dialect) {
    const std::string_view word = action.word;
    if (word == "BW") {
        if (dialect == CsvDialect::old) return Op::B;
        throw CellError(
            "BW is the full backward of PyTorch's old dialect; write " + with_numbers(action, "B") +
            ", or read the file in the dialect old (vocabpipe schedule convert --dialect old)");
    }
    if (word == "I" && dialect == CsvDialect::old) {
        throw CellError(
            "I is the input gradient of PyTorch's new dialect; write " + with_numbers(action, "B") +
            ", or read the file in the dialect new (vocabpipe schedule convert --dialect new)");
    }
    if (word == "B" && dialect == CsvDialect::old) return Op::I;
    for (const Op op : {Op::F, Op::B, Op::I, Op::W, Op::R, Op::E, Op::G, Op::S, Op::T}) {
        if (word != traits(op).name) continue;
        if (traits(op).vocabulary && dialect != CsvDialect::vocabpipe) {
            throw CellError(std::string(word) +
                            " is a vocabulary pass, which PyTorch's files do not have; start the "
                            "file with a row \"vocabpipe 1,barriers ...,input ...,output ...\"");
        }
        return op;
    }
    return std::nullopt;
}

void check_limits(const Meaning& meaning) {
    if (meaning.stage > kLastStage) {
        throw CellError("stage " + std::to_string(meaning.stage) + ": must be at most " +
                        std::to_string(kLastStage));
    }
    if (meaning.microbatch > kLastMicrobatch) {
        throw CellError("microbatch " + std::to_string(meaning.microbatch) + ": must be at most " +
                        std::to_string(kLastMicrobatch));
    }
}

}  // namespace

std::string_view to_string(Transfer word) {
    return kTransfers[static_cast<size_t>(word)];
}

std::optional<Transfer> transfer_of(std::string_view word) {
    const auto* found = std::find(kTransfers.begin(), kTransfers.end(), word);
    if (found == kTransfers.end()) return std::nullopt;
    return static_cast<Transfer>(found - kTransfers.begin());
}

std::string shown(std::string_view text) {
    constexpr size_t kMost = 40;
    std::string result = "\"";
    for (const char c : text.substr(0, kMost)) result += c >= 0x20 && c < 0x7f ? c : '?';
    return result + (text.size() > kMost ? "\"..." : "\"");
}

RawCell parse_cell(std::string_view text) {
    RawCell cell;
    cell.text = text = trimmed(text);
    if (text.empty()) return cell;
    if (text.front() == '(') {
        cell.pair = true;
        if (!text.ends_with(kPairEnd)) {
            throw CellError("is a pair that does not end in " + std::string(kPairEnd));
        }
        std::string_view members = text.substr(1, text.size() - 1 - kPairEnd.size());
        while (true) {
            const size_t end = members.find(';');
            cell.actions.push_back(whole_action(trimmed(members.substr(0, end))));
            if (end == std::string_view::npos) break;
            members.remove_prefix(end + 1);
        }
        if (cell.actions.size() != 2) {
            throw CellError("is a pair of " + std::to_string(cell.actions.size()) +
                            " passes; a pair has 2");
        }
        return cell;
    }
    std::string_view rest = text;
    cell.actions.push_back(take_action(rest));
    if (rest.starts_with('_')) {
        rest.remove_prefix(1);
        cell.batched = true;
        cell.actions.push_back(whole_action(rest));
    } else if (!rest.empty()) {
        throw CellError("has extra text " + shown(rest) + " after a complete pass");
    }
    return cell;
}

Meaning meaning_of(const RawCell& cell, const RawAction& action, CsvDialect dialect) {
    if (cell.pair && dialect == CsvDialect::old) {
        throw CellError(
            "PyTorch's old dialect has no pairs; read the file in the dialect new (vocabpipe "
            "schedule convert --dialect new)");
    }
    if (cell.batched && dialect != CsvDialect::old) {
        throw CellError(
            "two transfers in one cell are PyTorch's old dialect; split them into two cells, or "
            "read the file in the dialect old (vocabpipe schedule convert --dialect old)");
    }
    Meaning meaning{.stage = action.stage.value_or(0), .microbatch = action.microbatch.value_or(0)};
    check_limits(meaning);
    if (const std::optional<Op> op = op_of(action, dialect)) {
        if (cell.batched) throw CellError("only sends and receives may share a cell");
        const std::string name{traits(*op).name};
        if (!action.microbatch) {
            throw CellError("has no microbatch; write " + shown(with_numbers(action, action.word)));
        }
        if (traits(*op).has_stage && !action.stage) {
            throw CellError("has no stage; write " + shown(with_numbers(action, action.word)));
        }
        if (!traits(*op).has_stage && action.stage) {
            throw CellError("vocabulary passes have no stage; write " +
                            shown(name + std::to_string(meaning.microbatch)));
        }
        meaning.pass = Pass{*op, static_cast<uint16_t>(meaning.stage), meaning.microbatch};
        return meaning;
    }
    const std::optional<Transfer> transfer = transfer_of(action.word);
    if (transfer && dialect == CsvDialect::old && is_new(*transfer)) {
        throw CellError(std::string(action.word) +
                        " is PyTorch's new dialect; read the file in the dialect new (vocabpipe "
                        "schedule convert --dialect new)");
    }
    if (!transfer || dialect == CsvDialect::vocabpipe || cell.pair) {
        throw CellError(shown(action.word) + " is not a pass; use one of " +
                        (dialect == CsvDialect::old         ? "F B BW W R"
                         : dialect == CsvDialect::vocabpipe ? "F I W B R E G S T"
                                                            : "F I W B R"));
    }
    meaning.transfer = *transfer;
    const bool of_microbatch = meaning.transfer <= Transfer::wait_send_b;
    if (cell.batched && !of_microbatch) {
        throw CellError("only sends and receives may share a cell");
    }
    if (!action.stage) throw CellError("has no stage");
    if (of_microbatch && !action.microbatch) throw CellError("has no microbatch");
    if (!of_microbatch && action.microbatch) {
        throw CellError(std::string(action.word) + " must not have a microbatch");
    }
    return meaning;
}

}  // namespace vocabpipe::files
