// SPDX-License-Identifier: Apache-2.0
#include "base/exceptions.h"

#include <exception>
#include <stdexcept>
#include <system_error>

#include "base/errors.h"

namespace millrace {
namespace {

bool MeansExhausted(const std::error_code& code) {
  return code == std::errc::resource_unavailable_try_again ||
         code == std::errc::not_enough_memory || code == std::errc::too_many_files_open ||
         code == std::errc::too_many_files_open_in_system;
}

}  // namespace

Status CaughtStatus() {
  try {
    throw;
  } catch (const OutOfMemory& e) {
    return e.status();
  } catch (const std::bad_alloc&) {
    return errors::ResourceExhausted("out of memory: the system refused what was asked for");
  } catch (const std::length_error& e) {
    return errors::ResourceExhausted("out of memory: more elements than a container can have (",
                                     e.what(), ")");
  } catch (const std::system_error& e) {
    if (MeansExhausted(e.code())) {
      return errors::ResourceExhausted("the system refused a thread or another resource: ",
                                       e.what());
    }
    return errors::Internal("the system reported an error: ", e.what());
  } catch (const std::exception& e) {
    return errors::Internal("unexpected exception: ", e.what());
  } catch (...) {
    return errors::Internal("unexpected exception of an unknown type");
  }
}

}  // namespace millrace
