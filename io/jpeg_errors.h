// SPDX-License-Identifier: Apache-2.0
// Errors of libjpeg, which are jumps: no function that calls setjmp owns an object with a
// destructor, so that a jump leaks nothing.
#ifndef IO_JPEG_ERRORS_H_
#define IO_JPEG_ERRORS_H_

#include <csetjmp>
#include <cstdio>  // before jpeglib.h, which needs it

#include <jpeglib.h>

namespace millrace {

// Handed to libjpeg as its error manager; the jump goes to `back`.
struct JpegErrors {
  jpeg_error_mgr manager;
  std::jmp_buf back;
  char text[JMSG_LENGTH_MAX];
};

// The manager to give to libjpeg, of errors that are kept in `errors`.
inline jpeg_error_mgr* ManagerOf(JpegErrors* errors) {
  errors->text[0] = '\0';
  jpeg_error_mgr* const manager = jpeg_std_error(&errors->manager);
  manager->error_exit = [](j_common_ptr info) {
    auto* const mine = reinterpret_cast<JpegErrors*>(info->err);
    info->err->format_message(info, mine->text);
    std::longjmp(mine->back, 1);
  };
  // Warnings would go to standard error.
  manager->output_message = [](j_common_ptr) {};
  return manager;
}

}  // namespace millrace

#endif  // IO_JPEG_ERRORS_H_
