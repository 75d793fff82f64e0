//! Passes the commit to the program; generates bindings of `proto/`, and the binary form of the P4 program's description, which
//! is sent to switches.

#[path = "../environment/commit.rs"]
mod commit;

use std::error::Error;

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo::rerun-if-changed=build.rs");
    commit::tell();
    #[cfg(feature = "p4runtime")]
    p4runtime::make()?;
    Ok(())
}

#[cfg(feature = "p4runtime")]
mod p4runtime {
    use std::error::Error;
    use std::path::PathBuf;
    use std::{env, fs};

    use prost_reflect::DynamicMessage;
    use prost_reflect::prost::Message;
    use protox::Compiler;

    const P4INFO: &str = "p4/harmonia.p4info.txtpb";

    pub fn make() -> Result<(), Box<dyn Error>> {
        println!("cargo::rerun-if-changed=proto");
        println!("cargo::rerun-if-changed={P4INFO}");
        let mut compiler = Compiler::new(["proto"])?;
        compiler.include_imports(true).open_file("p4/v1/p4runtime.proto")?;
        tonic_prost_build::configure().compile_fds(compiler.file_descriptor_set())?;

        let pool = compiler.descriptor_pool();
        let descriptor = pool.get_message_by_name("p4.config.v1.P4Info").ok_or("there is no P4Info in proto/")?;
        let p4info = DynamicMessage::parse_text_format(descriptor, &fs::read_to_string(P4INFO)?)
            .map_err(|error| format!("{P4INFO}: {error}"))?;
        let out = PathBuf::from(env::var("OUT_DIR")?);
        fs::write(out.join("harmonia.p4info.bin"), p4info.encode_to_vec())?;
        Ok(())
    }
}
