// SPDX-License-Identifier: Apache-2.0
#include "src/runtime/symmetric/meeting.hpp"

#include "src/runtime/tile_link/mail_wait.hpp"

#include <algorithm>
#include <utility>

namespace vocabpipe::symmetric {

Meeting::Meeting(Communicator& world, const SymmetricMemoryOptions& options, int self)
    : mail_(world.tile_mail()),
      wait_(world.wait_options()),
      options_(options),
      self_(self),
      line_(mail_.open(options.ranks, *this)) {}

Meeting::Round& Meeting::round(int64_t number) {
    Round& found = open_[number];
    found.texts.resize(options_.ranks.size());
    found.there.resize(options_.ranks.size());
    return found;
}

std::optional<std::span<std::byte>> Meeting::place(int rank, const Letter& letter) {
    const auto member = static_cast<size_t>(member_of(options_.ranks, rank));
    std::string& text = round(letter.words[0]).texts[member];
    text.resize(static_cast<size_t>(letter.bytes));
    return std::as_writable_bytes(std::span(text));
}

void Meeting::arrived(int rank, const Letter& letter) {
    round(letter.words[0]).there[static_cast<size_t>(member_of(options_.ranks, rank))] = true;
}

std::vector<std::string> Meeting::gather(const std::string& mine) {
    const int64_t number = rounds_++;
    const auto bytes = std::as_bytes(std::span(mine));
    for (const int rank : options_.ranks) {
        if (rank == mail_.transport().rank()) continue;
        mail_.send(rank, {.line = line_, .words = {number}},
                   std::vector<std::byte>(bytes.begin(), bytes.end()));
    }
    Round& here = round(number);
    here.texts[static_cast<size_t>(self_)] = mine;
    here.there[static_cast<size_t>(self_)] = true;
    const auto missing = [&] {
        return std::find(here.there.begin(), here.there.end(), false) - here.there.begin();
    };
    std::ptrdiff_t seen = -1;
    wait_by_mail(
        mail_, wait_, options_.poll,
        [&] {
            const std::ptrdiff_t member = missing();
            // What was sent must be taken, too: afterwards this rank may not poll for long.
            if (member == std::ssize(here.there) && mail_.idle(options_.ranks)) return Found::all;
            return std::exchange(seen, member) == member ? Found::nothing : Found::something;
        },
        [&] {
            std::string text = "rank " + std::to_string(mail_.transport().rank()) +
                               ": opening of symmetric memory: waits for ";
            const auto member = static_cast<size_t>(missing());
            if (member == options_.ranks.size()) return text + "its messages to be taken";
            return text + "member " + std::to_string(member) + " (rank " +
                   std::to_string(options_.ranks[member]) + ")";
        });
    std::vector<std::string> texts = std::move(here.texts);
    open_.erase(number);
    return texts;
}

}  // namespace vocabpipe::symmetric
