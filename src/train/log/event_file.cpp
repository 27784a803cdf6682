// SPDX-License-Identifier: Apache-2.0
#include "src/train/log/event_file.hpp"

#include "src/support/crc32c.hpp"

#include <unistd.h>
#include <array>
#include <bit>
#include <chrono>

namespace vocabpipe {

namespace {

constexpr const char* kFolderFlag = "--tensorboard-dir";
constexpr uint32_t kSessionStart = 1;  // SessionLog.START

// Protobuf's wire format: a field is its number and type in one varint, then its value.

enum WireType : uint32_t { kVarint = 0, kFixed64 = 1, kBytes = 2, kFixed32 = 5 };

void put_varint(std::string& out, uint64_t value) {
    for (; value >= 0x80; value >>= 7) out += static_cast<char>((value & 0x7f) | 0x80);
    out += static_cast<char>(value);
}

template <typename T>
void put_little_endian(std::string& out, T value) {
    for (size_t i = 0; i < sizeof value; ++i) out += static_cast<char>((value >> (8 * i)) & 0xff);
}

void put_key(std::string& out, uint32_t field, WireType type) {
    put_varint(out, field << 3U | type);
}

void put_bytes(std::string& out, uint32_t field, std::string_view bytes) {
    put_key(out, field, kBytes);
    put_varint(out, bytes.size());
    out += bytes;
}

/// Event: wall_time = 1, step = 2.
std::string event_at(int64_t step) {
    const double now =
        std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
    std::string event;
    put_key(event, 1, kFixed64);
    put_little_endian(event, std::bit_cast<uint64_t>(now));
    put_key(event, 2, kVarint);
    put_varint(event, static_cast<uint64_t>(step));
    return event;
}

/// TFRecord masks checksums, because a checksum of data that contain their checksum is degenerate.
uint32_t masked_crc(std::string_view bytes) {
    const uint32_t crc = crc32c(std::as_bytes(std::span(bytes)));
    return std::rotr(crc, 15) + 0xa282ead8U;
}

/// Length, its checksum, data, their checksum (TFRecord).
std::string framed(const std::string& data) {
    std::string frame;
    put_little_endian(frame, static_cast<uint64_t>(data.size()));
    put_little_endian(frame, masked_crc(frame));
    frame += data;
    put_little_endian(frame, masked_crc(data));
    return frame;
}

std::string file_name(const std::string& folder) {
    std::array<char, 256> host{};
    if (::gethostname(host.data(), host.size() - 1) != 0) host = {'h', 'o', 's', 't'};
    const auto now = std::chrono::duration_cast<std::chrono::seconds>(
        std::chrono::system_clock::now().time_since_epoch());
    return folder + "/events.out.tfevents." + std::to_string(now.count()) + "." + host.data() +
           "." + std::to_string(::getpid());
}

}  // namespace

EventFile::EventFile(const std::string& folder, int64_t first_step) {
    const std::string name = file_name(folder);
    for (int attempt = 0; !file_ || !file_->is_open(); ++attempt) {
        file_.emplace(kFolderFlag, attempt == 0 ? name : name + "." + std::to_string(attempt),
                      AppendFile::Mode::must_be_new);
    }
    std::string version = event_at(0);
    put_bytes(version, 3, "brain.Event:2");  // Event.file_version
    std::string session;
    put_key(session, 1, kVarint);  // SessionLog.status
    put_varint(session, kSessionStart);
    std::string start = event_at(first_step);
    put_bytes(start, 7, session);  // Event.session_log
    file_->add(framed(version) + framed(start));
}

void EventFile::add(int64_t step, std::span<const ScalarSummary> scalars) {
    std::string summary;
    for (const ScalarSummary& scalar : scalars) {
        std::string value;
        put_bytes(value, 1, scalar.tag);
        put_key(value, 2, kFixed32);  // simple_value
        put_little_endian(value, std::bit_cast<uint32_t>(scalar.value));
        put_bytes(summary, 1, value);
    }
    std::string event = event_at(step);
    put_bytes(event, 5, summary);  // Event.summary
    file_->add(framed(event));
}

}  // namespace vocabpipe
