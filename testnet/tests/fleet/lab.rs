//! Hosts of a laboratory: wide areas on one machine.

use super::Lab;

#[test]
fn a_network_stands_in_a_laboratory() {
    let lab = Lab::new();
    let plan = format!(
        "name = \"{}\"\nlatency = {{ model = \"three-sites\" }}\n{}",
        lab.name,
        ["ann", "ben", "cat"].map(|host| format!("[[hosts]]\nname = \"{host}\"\nsite = \"{host}s\"\n")).concat()
    );
    let plan_file = lab.directory.join("plan.toml");
    std::fs::write(&plan_file, plan).expect("a file can be written");
    if let Some(why) = testnet::lab::missing(&testnet::lab::LabPlan::read(&plan_file).expect("it is a plan")) {
        return eprintln!("SKIPPED: {why}");
    }
    let hosts = ["ann", "ben", "cat"].map(|host| format!("[[host]]\nname = \"{host}\"\nkind = \"netns\"\npeers = 1\n"));
    lab.write(&hosts.concat());
    let text = std::fs::read_to_string(lab.inventory()).expect("it was written");
    std::fs::write(lab.inventory(), format!("lab = \"plan.toml\"\n{text}")).expect("a file can be written");
    assert!(lab.run("up", &[]).contains("3 peers serve, 3 of them started now"));
    let seen = lab.run("load", &["--minutes", "0.05"]);
    assert!(seen.contains("linearizable, and no acknowledged write is missing"), "{seen}");
    lab.run("fault", &["cut", "ann", "*"]);
    let apart = lab.run("run", &["--", "bin/scatter get k --addr 127.0.0.1:21001; echo exit $?"]);
    assert!(apart.contains("ben: exit 1") && !apart.contains("ann: exit 1"), "two of three serve: {apart}");
    lab.run("fault", &["heal"]);
    let seen = lab.run("load", &["--minutes", "0.05"]);
    assert!(seen.contains("linearizable, and no acknowledged write is missing"), "{seen}");
    assert!(lab.refused("fault", &["clock", "ann"]).contains("clocks cannot be changed"));
    lab.run("down", &["--wipe"]);
    assert!(!testnet::lab::Lab::names().contains(&lab.name), "the laboratory is gone, too");
}

#[test]
fn paths_cannot_be_cut_without_a_laboratory() {
    let lab = Lab::new();
    lab.write_local("memory", 1);
    lab.run("up", &[]);
    let why = lab.refused("fault", &["cut", "here", "here"]);
    assert!(why.contains("only in a laboratory"), "{why}");
}
