// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <stdexcept>
#include <string>

namespace vocabpipe {

/// Process exit codes of every VocabPipe program (docs/errors.md).
enum class ExitCode : int {
    ok = 0,
    failed = 1,
    usage = 2,
    input_file = 3,
    out_of_memory = 4,
    communication = 5,
    device = 6,
    wrong_values = 7,   ///< a value is NaN or infinite, or not what a verification expects
    hung_up = 129,      ///< SIGHUP, 128 + its number; ended after a whole step
    interrupted = 130,  ///< SIGINT; likewise
    terminated = 143,   ///< SIGTERM; likewise
};

/// Base of all exceptions that the library throws on purpose. The message is one line that names
/// the flag or file, the value, the limit and the remedy; the library never exits or aborts by
/// itself.
class Error : public std::runtime_error {
public:
    /// `message`: one line.
    Error(ExitCode code, const std::string& message) : std::runtime_error(message), code_(code) {}
    /// Exit code of a program that this error ends.
    [[nodiscard]] ExitCode exit_code() const noexcept { return code_; }

private:
    ExitCode code_;
};

/// A flag, an option or a combination of them that cannot work.
class UsageError : public Error {
public:
    /// `message` names flag, value, limit and remedy.
    explicit UsageError(const std::string& message) : Error(ExitCode::usage, message) {}
};

/// A file that is missing, truncated, corrupt or does not fit the configuration.
class InputFileError : public Error {
public:
    /// `message` names file, place and remedy.
    explicit InputFileError(const std::string& message) : Error(ExitCode::input_file, message) {}
};

/// A file that cannot be written: disk full, no permission.
class OutputFileError : public Error {
public:
    /// `message` names the file and the reason.
    explicit OutputFileError(const std::string& message) : Error(ExitCode::failed, message) {}
};

/// More memory is needed than there is; says how much was planned.
class OutOfMemoryError : public Error {
public:
    /// `message` names what was to be allocated, and how large.
    explicit OutOfMemoryError(const std::string& message)
        : Error(ExitCode::out_of_memory, message) {}
};

/// A GPU that is missing, does not fit the build, or failed.
class DeviceError : public Error {
public:
    /// `message` names the device and the call that failed.
    explicit DeviceError(const std::string& message) : Error(ExitCode::device, message) {}
};

/// A peer that died, failed or does not answer; says who waited at which action for whom.
class CommunicationError : public Error {
public:
    /// `message` names who waited at which action for whom.
    explicit CommunicationError(const std::string& message)
        : Error(ExitCode::communication, message) {}
};

}  // namespace vocabpipe
