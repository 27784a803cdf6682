// SPDX-License-Identifier: Apache-2.0
#include "src/runtime/tile_link/mail_link.hpp"

#include "src/runtime/tile_link/checks.hpp"
#include "src/runtime/tile_link/mail_exchange.hpp"
#include "vocabpipe/error.hpp"

#include <utility>

namespace vocabpipe {

MailLink::MailLink(Communicator& world, TileLinkOptions options)
    : mail_(world.tile_mail()),
      wait_(world.wait_options()),
      options_(std::move(options)),
      self_(tile_link::own_member(options_.ranks, world.rank(), world.size())),
      line_(mail_.open(options_.ranks, *this)) {}

MailLink::~MailLink() {
    mail_.close(line_);
}

TileLink::Operation MailLink::all_to_all(std::span<const Outgoing> send,
                                         std::span<const Incoming> receive, Name name,
                                         Order /*order*/) {
    std::string text = tile_link::text_of(name);
    tile_link::check_idle(mail_.transport().rank(), text, broken_, nullptr);
    tile_link::check_parts(text, self_, options_.ranks.size(), send, receive);
    return Operation(std::make_unique<MailExchange>(*this, std::move(text), send, receive));
}

std::optional<std::span<std::byte>> MailLink::place(int rank, const Letter& letter) {
    const int64_t number = letter.words[0];
    if (number >= operations_) return std::nullopt;
    const auto operation = running_.find(number);
    const int member = member_of(options_.ranks, rank);
    if (operation != running_.end()) return operation->second->place(member, letter);
    throw CommunicationError("rank " + std::to_string(mail_.transport().rank()) +
                             ": tile link: piece " + std::to_string(letter.words[1]) +
                             " of member " + std::to_string(member) + " (rank " +
                             std::to_string(rank) + ") came after its operation had finished");
}

void MailLink::arrived(int rank, const Letter& letter) {
    running_.at(letter.words[0])->arrived(member_of(options_.ranks, rank));
}

std::unique_ptr<TileLink> open_tile_link(Communicator& world, TileLinkOptions options) {
    if (options.ranks.empty()) options.ranks = tile_link::all_ranks(world.size());
    return std::make_unique<MailLink>(world, std::move(options));
}

std::unique_ptr<TileLink> open_tile_link(Communicator& world, const Mesh& mesh, Axis axis,
                                         std::function<void()> poll) {
    mesh.check();
    if (mesh.size() != world.size()) {
        throw UsageError("tile link: a mesh of " + std::to_string(mesh.size()) +
                         " ranks in a world of " + std::to_string(world.size()));
    }
    return open_tile_link(world, {.ranks = mesh.ranks_along(axis, mesh.place(world.rank())),
                                  .poll = std::move(poll)});
}

}  // namespace vocabpipe
