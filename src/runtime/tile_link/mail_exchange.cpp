// SPDX-License-Identifier: Apache-2.0
#include "src/runtime/tile_link/mail_exchange.hpp"

#include "src/runtime/tile_link/mail_wait.hpp"
#include "vocabpipe/error.hpp"

#include <cstring>
#include <utility>

namespace vocabpipe {

MailExchange::MailExchange(MailLink& link, std::string name,
                           std::span<const TileLink::Outgoing> send,
                           std::span<const TileLink::Incoming> receive)
    : link_(link), name_(std::move(name)), number_(link.operations_++) {
    for (const TileLink::Outgoing& part : send) out_.push_back({.part = part, .letters = {}});
    for (const TileLink::Incoming& part : receive) in_.push_back({.part = part});
    link_.running_[number_] = this;
    try {
        link_.mail_.redeliver(link_.line_);
    } catch (...) {  // no destructor runs
        link_.running_.erase(number_);
        link_.broken_ = true;
        link_.mail_.cancel();
        throw;
    }
}

MailExchange::~MailExchange() {
    link_.running_.erase(number_);
    if (finished_) return;
    link_.broken_ = true;
    link_.mail_.cancel();
}

std::span<std::byte> MailExchange::place(int member, const Letter& letter) const {
    const Inbox& box = in_.at(static_cast<size_t>(member));
    const int64_t piece = letter.words[1];
    if (piece == box.done && box.done < box.pieces()) {
        const std::span<std::byte> bytes = tile_link::piece_of(box.part, box.done);
        if (static_cast<int64_t>(bytes.size()) == letter.bytes) return bytes;
        throw CommunicationError(where("expects", member, box.done) + " of " +
                                 std::to_string(bytes.size()) + " bytes, but one of " +
                                 std::to_string(letter.bytes) + " bytes came");
    }
    throw CommunicationError(where("expects", member, box.done) + " of " +
                             std::to_string(box.pieces()) + ", but piece " + std::to_string(piece) +
                             " came");
}

// --- what users call -----------------------------------------------------------------------------

void MailExchange::copy_own(int piece) {
    const auto self = static_cast<size_t>(link_.self_);
    const auto from = tile_link::piece_of(out_[self].part, piece);
    const auto to = tile_link::piece_of(in_[self].part, piece);
    if (from.data() != to.data() && !from.empty()) std::memcpy(to.data(), from.data(), from.size());
    ++out_[self].done;
    ++in_[self].done;
}

void MailExchange::release(int member, int pieces) {
    Outbox& box = out_.at(static_cast<size_t>(member));
    tile_link::check_pieces(name_, "releases", member, pieces, box.pieces());
    while (box.released() < pieces) {
        const int piece = box.released();
        if (member == link_.self_) {
            copy_own(piece);
            box.letters.push_back(0);
            continue;
        }
        const int rank = link_.options_.ranks[static_cast<size_t>(member)];
        box.letters.push_back(link_.mail_.send(rank,
                                               {.line = link_.line_, .words = {number_, piece}},
                                               tile_link::piece_of(box.part, piece)));
    }
}

bool MailExchange::test(int member, int pieces) {
    const Inbox& box = in_.at(static_cast<size_t>(member));
    tile_link::check_pieces(name_, "tests", member, pieces, box.pieces());
    if (box.done < pieces) (void)link_.mail_.advance();
    return box.done >= pieces;
}

int MailExchange::wait(int member, int pieces) {
    const Inbox& box = in_.at(static_cast<size_t>(member));
    tile_link::check_pieces(name_, "waits for", member, pieces, box.pieces());
    if (member == link_.self_ && box.done < pieces) {
        throw UsageError(name_ + ": waits for piece " + std::to_string(pieces - 1) +
                         " of the rank's own part, which it has not released");
    }
    if (box.done < box.pieces()) (void)link_.mail_.advance();
    wait_by_mail(
        link_.mail_, link_.wait_, link_.options_.poll,
        [&] { return box.done >= pieces ? Found::all : Found::nothing; },
        [&] { return awaited(member); });
    return box.done;
}

bool MailExchange::all_done() {
    bool all = true;
    for (Outbox& box : out_) {
        while (box.done < box.released() &&
               link_.mail_.sent(box.letters[static_cast<size_t>(box.done)])) {
            ++box.done;
        }
        all = all && box.done == box.pieces();
    }
    for (const Inbox& box : in_) all = all && box.done == box.pieces();
    return all;
}

void MailExchange::finish() {
    for (size_t m = 0; m < out_.size(); ++m) {
        if (out_[m].released() == out_[m].pieces()) continue;
        throw UsageError(name_ + ": finishes before piece " + std::to_string(out_[m].released()) +
                         " for member " + std::to_string(m) + " is released");
    }
    wait_by_mail(
        link_.mail_, link_.wait_, link_.options_.poll,
        [&] { return all_done() ? Found::all : Found::nothing; }, [&] { return awaited(-1); });
    finished_ = true;
}

// --- texts ---------------------------------------------------------------------------------------

std::string MailExchange::where(const char* what, int member, int piece) const {
    return tile_link::piece_text(link_.mail_.transport().rank(), name_, what, member, piece,
                                 link_.options_.ranks);
}

std::string MailExchange::awaited(int member) const {
    return tile_link::missing_text(link_.mail_.transport().rank(), name_, in_, out_, member,
                                   link_.options_.ranks);
}

}  // namespace vocabpipe
