//! Compiles the kernel half, `bpf/*.bpf.c`, with clang into the crate.

use std::env;
use std::path::{Path, PathBuf};
use std::process::{Command, exit};

fn main() {
    // Asked for now: in a clone that was moved, cargo runs this program again and does not compile it again.
    let package = env::var_os("CARGO_MANIFEST_DIR").expect("cargo sets CARGO_MANIFEST_DIR");
    let sources = Path::new(&package).join("../../bpf");
    for name in [
        "steer.bpf.c",
        "collect.bpf.c",
        "spread.bpf.c",
        "dnsdist.bpf.c",
        "heartbeat.h",
        "parse.h",
        "shared.h",
        "collect.h",
    ] {
        println!("cargo:rerun-if-changed={}", sources.join(name).display());
    }
    println!("cargo:rerun-if-env-changed=CLANG");
    let object = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    for name in ["steer", "collect", "spread", "dnsdist"] {
        compile(
            &sources.join(name).with_extension("bpf.c"),
            &object.join(name).with_extension("bpf.o"),
        );
    }
}

fn compile(source: &Path, object: &Path) {
    let clang = env::var("CLANG").unwrap_or_else(|_| "clang".to_owned());
    let architecture = env::var("CARGO_CFG_TARGET_ARCH").expect("cargo sets CARGO_CFG_TARGET_ARCH");
    let endian = env::var("CARGO_CFG_TARGET_ENDIAN").expect("cargo sets CARGO_CFG_TARGET_ENDIAN");
    let target = if endian == "big" { "bpfeb" } else { "bpfel" };
    let status = Command::new(&clang)
        // v3 (32-bit registers and jumps): Linux 5.1, and we ask for 5.10.
        .args([
            "-O2", "-g", "-mcpu=v3", "-Wall", "-Wextra", "-Werror", "-target", target,
        ])
        // Debian keeps <asm/types.h> in a folder of the architecture, which `-target bpf` does not search.
        .arg(format!("-I/usr/include/{architecture}-linux-gnu"))
        .arg("-c")
        .arg(source)
        .arg("-o")
        .arg(object)
        .status();
    match status {
        Ok(status) if status.success() => {}
        Ok(status) => fail(&format!(
            "{clang} could not compile {} ({status}); it needs the packages libbpf-dev and linux-libc-dev \
             (Debian, Ubuntu)",
            source.display()
        )),
        Err(error) => fail(&format!(
            "cannot run {clang}: {error}. The kernel program is built from C: install the package clang \
             (and libbpf-dev, linux-libc-dev), or name another compiler in the environment variable CLANG"
        )),
    }
}

fn fail(message: &str) -> ! {
    eprintln!("{message}");
    exit(1);
}
